// A load generator that costs little beside a server in Python: prebuilt requests and frames, answers only counted.
//
// It reads a run as JSON from stdin (benchmarks/generator.py has the types) and writes the result as JSON to stdout.
// Connections that consume are open before any that sends, and are closed after all that send have had their answers.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

const drain = 2 * time.Second // for answers to what was sent before the end of a run

// Run is what to do. `Count` ends the measured time early, once so many were counted; 0 is no such bound.
type Run struct {
	Port    int     `json:"port"`
	Pid     int     `json:"pid"` // of the server, whose CPU time is measured
	Warm    float64 `json:"warm_s"`
	Seconds float64 `json:"seconds"`
	Count   int64   `json:"count"`
	Peers   []Peer  `json:"peers"`
}

// Peer is a group of connections that do the same.
type Peer struct {
	Kind        string   `json:"kind"` // publish, paced, consume, http, fetch
	Connections int      `json:"connections"`
	Measured    bool     `json:"measured"`
	Path        string   `json:"path"`
	Text        string   `json:"text"`      // of a frame to send
	InFlight    int      `json:"in_flight"` // frames on each connection
	PerSecond   float64  `json:"per_second"`
	Counts      string   `json:"counts"` // what a frame must hold to be an answer
	Good        string   `json:"good"`   // what an answer must hold to be no failure
	Before      string   `json:"before"` // the answer to a delivery: this, its id, and `After`
	After       string   `json:"after"`
	Requests    []string `json:"requests"`
	Mark        string   `json:"mark"` // what each message of a fetch has, where messages have no ids
}

// flow is what the connections of a run share.
type flow struct {
	address string
	meter   *meter
	stop    atomic.Bool // send nothing more
	end     atomic.Bool // everything was answered: errors of connections are no failures now
}

// connection is open already; `run` lasts until the flow stops, and `close` makes it end.
type connection interface {
	run()
	close()
}

func main() {
	runtime.GOMAXPROCS(1) // its share of the machine is bounded, and shows when it is the bottleneck
	debug.SetGCPercent(1000)
	var run Run
	err := json.NewDecoder(os.Stdin).Decode(&run)
	if err == nil {
		err = run.do()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (run *Run) do() error {
	shared := &flow{
		address: fmt.Sprintf("127.0.0.1:%d", run.Port),
		meter:   newMeter(run.Count),
	}
	consuming, err := shared.open(run.Peers, true)
	if err != nil {
		return err
	}
	sending, err := shared.open(run.Peers, false)
	if err != nil {
		return err
	}
	consumed, sent := start(consuming), start(sending)
	result := shared.meter.measure(run)
	shared.stop.Store(true)
	waitFor(sent)
	shared.end.Store(true)
	for _, each := range append(sending, consuming...) {
		each.close()
	}
	waitFor(consumed)
	result.Failed = shared.meter.failed.Load()
	return json.NewEncoder(os.Stdout).Encode(result)
}

// open connects the groups that consume, or those that send.
func (f *flow) open(peers []Peer, consuming bool) ([]connection, error) {
	var opened []connection
	for number := range peers {
		peer := &peers[number]
		if (peer.Kind == "consume") != consuming {
			continue
		}
		for range peer.Connections {
			made, err := f.connect(peer)
			if err != nil {
				return nil, err
			}
			opened = append(opened, made)
		}
	}
	return opened, nil
}

func (f *flow) connect(peer *Peer) (connection, error) {
	switch peer.Kind {
	case "publish", "paced", "consume":
		return dialWebSocket(f, peer)
	case "http", "fetch":
		return dialHTTP(f, peer)
	}
	return nil, fmt.Errorf("no such kind of peer: %q", peer.Kind)
}

func start(connections []connection) *sync.WaitGroup {
	var running sync.WaitGroup
	for _, each := range connections {
		running.Add(1)
		go func(each connection) {
			defer running.Done()
			each.run()
		}(each)
	}
	return &running
}

func waitFor(running *sync.WaitGroup) {
	done := make(chan struct{})
	go func() {
		running.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(drain):
	}
}
