// Runs steps of the official Go client, one for each line of standard input.
//
// A line is JSON: {"step": "message", "args": {…}}. The answer is one line of JSON: {"ok": value} or
// {"error": kind, "message": text}. A step that takes longer than 40 seconds is answered as the error "hangs".
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

const limit = 40 * time.Second

type order struct {
	Step string         `json:"step"`
	Args map[string]any `json:"args"`
}

type answer struct {
	Ok      any    `json:"ok,omitempty"`
	Error   string `json:"error,omitempty"`
	Message string `json:"message,omitempty"`
}

func main() {
	serviceURL, httpURL := os.Args[1], os.Args[2]
	lines := bufio.NewScanner(os.Stdin)
	answers := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var o order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			panic(err)
		}
		s := &server{serviceURL: serviceURL, httpURL: httpURL, step: o.Step, args: o.Args}
		done := make(chan answer, 1)
		go func() { done <- call(o.Step, s) }()
		select {
		case a := <-done:
			answers.Encode(a)
		case <-time.After(limit):
			answers.Encode(answer{Error: "hangs", Message: fmt.Sprintf("no result after %s", limit)})
		}
		go s.close()
	}
}

func call(name string, s *server) (a answer) {
	defer func() {
		if p := recover(); p != nil {
			a = answer{Error: "panic", Message: fmt.Sprint(p)}
		}
	}()
	step, known := steps[name]
	if !known {
		return answer{Error: "unknown step", Message: name}
	}
	value, err := step(s)
	if err != nil {
		return answer{Error: "error", Message: err.Error()}
	}
	return answer{Ok: value}
}
