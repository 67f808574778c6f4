package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

const (
	text, goodbye, ping, pong = 0x81, 0x88, 0x89, 0x8a
	stamp                     = "0000000000000000000" // in the text of a paced frame: when it was sent, in ns
)

var (
	mask   = [4]byte{0x37, 0xfa, 0x21, 0x3d} // any but zeros, which a server might pass over
	idMark = []byte(`"messageId":"`)
	atMark = []byte(`"at":"`)
)

// webSocket is one connection of a group. Its answers to what one read brought go out in one write.
type webSocket struct {
	*flow
	peer   *Peer
	conn   net.Conn
	unread []byte
	buffer []byte
	out    []byte
	sent   []time.Time // of frames that were not answered yet, the oldest first
}

func dialWebSocket(f *flow, peer *Peer) (*webSocket, error) {
	conn, err := net.Dial("tcp", f.address)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n", peer.Path)
	reader := bufio.NewReader(conn)
	status, err := reader.ReadString('\n')
	for line := status; err == nil && line != "\r\n"; {
		line, err = reader.ReadString('\n')
	}
	if err != nil {
		return nil, err
	}
	if !strings.Contains(status, " 101 ") {
		return nil, fmt.Errorf("%s: the upgrade was refused: %s", peer.Path, strings.TrimSpace(status))
	}
	early := make([]byte, reader.Buffered())
	_, err = io.ReadFull(reader, early)
	return &webSocket{flow: f, peer: peer, conn: conn, unread: early, buffer: make([]byte, 1<<18)}, err
}

func (w *webSocket) close() {
	w.conn.Write(appendFrame(nil, goodbye, []byte{3, 232}))
	w.conn.Close()
}

func (w *webSocket) run() {
	var err error
	switch w.peer.Kind {
	case "publish":
		err = w.publish()
	case "paced":
		err = w.paced()
	case "consume":
		err = w.read(w.delivered, func() bool { return false })
	}
	if err != nil && !w.end.Load() {
		w.meter.failed.Add(1)
	}
}

// publish keeps as many frames under way as the group has in flight.
func (w *webSocket) publish() error {
	frame := appendFrame(nil, text, []byte(w.peer.Text))
	frames := bytes.Repeat(frame, w.peer.InFlight)
	left := w.peer.InFlight
	w.note(left)
	if _, err := w.conn.Write(frames); err != nil {
		return err
	}
	answer := func(payloads [][]byte) error {
		answers := w.answered(payloads)
		if w.stop.Load() {
			left -= answers
			return nil
		}
		w.note(answers)
		_, err := w.conn.Write(frames[:answers*len(frame)])
		return err
	}
	return w.read(answer, func() bool { return left == 0 })
}

// paced sends frames at the group's rate, each with the time it is sent at.
func (w *webSocket) paced() error {
	go w.read( // until the connection is closed
		func(payloads [][]byte) error { w.answered(payloads); return nil },
		func() bool { return false },
	)
	begin := time.Now()
	at := strings.Index(w.peer.Text, stamp)
	content := []byte(w.peer.Text)
	for number := 0; !w.stop.Load(); number++ {
		due := begin.Add(time.Duration(float64(number) / w.peer.PerSecond * float64(time.Second)))
		time.Sleep(time.Until(due))
		if at >= 0 {
			copy(content[at:], fmt.Sprintf("%0*d", len(stamp), time.Now().UnixNano()))
		}
		if _, err := w.conn.Write(appendFrame(nil, text, content)); err != nil {
			return err
		}
	}
	return nil
}

// note remembers when frames were sent.
func (w *webSocket) note(frames int) {
	now := time.Now()
	for range frames {
		w.sent = append(w.sent, now)
	}
}

// answered counts the answers among payloads.
func (w *webSocket) answered(payloads [][]byte) int {
	count := 0
	for _, payload := range payloads {
		if bytes.Contains(payload, []byte(w.peer.Counts)) {
			count++
			if !bytes.Contains(payload, []byte(w.peer.Good)) {
				w.meter.failed.Add(1)
			}
		}
	}
	if w.peer.Measured {
		w.meter.add(count)
	}
	if len(w.sent) >= count {
		now := time.Now()
		delays := make([]time.Duration, count)
		for number := range delays {
			delays[number] = now.Sub(w.sent[number])
		}
		w.sent = append(w.sent[:0], w.sent[count:]...)
		if w.peer.Measured {
			w.meter.took(delays...)
		}
	}
	return count
}

// delivered answers each message as the group is told to: an acknowledgement, or a reply.
func (w *webSocket) delivered(payloads [][]byte) error {
	w.out = w.out[:0]
	count := 0
	for _, payload := range payloads {
		_, rest, found := bytes.Cut(payload, idMark)
		if !found {
			continue
		}
		count++
		id := rest[:max(0, bytes.IndexByte(rest, '"'))]
		w.out = appendFrame(w.out, text, []byte(w.peer.Before), id, []byte(w.peer.After))
		if _, at, found := bytes.Cut(payload, atMark); found && len(at) > len(stamp) && w.peer.Measured {
			sent, _ := strconv.ParseInt(string(at[:len(stamp)]), 10, 64)
			w.meter.took(time.Duration(time.Now().UnixNano() - sent))
		}
	}
	if w.peer.Measured {
		w.meter.add(count)
	}
	_, err := w.conn.Write(w.out)
	return err
}

// read gives `came` the payloads of the text frames that each read brought, until it is `over`.
func (w *webSocket) read(came func([][]byte) error, over func() bool) error {
	filled := copy(w.buffer, w.unread)
	var payloads [][]byte
	for {
		payloads = payloads[:0]
		used := 0
		for {
			kind, payload, size := nextFrame(w.buffer[used:filled])
			if size == 0 {
				break
			}
			used += size
			switch kind {
			case text:
				payloads = append(payloads, payload)
			case ping:
				w.conn.Write(appendFrame(nil, pong, payload))
			default:
				return fmt.Errorf("%s: a frame of type %#x: %q", w.peer.Path, kind, payload)
			}
		}
		if len(payloads) > 0 {
			if err := came(payloads); err != nil {
				return err
			}
		}
		if over() {
			return nil
		}
		filled = copy(w.buffer, w.buffer[used:filled])
		if filled == len(w.buffer) {
			w.buffer = append(w.buffer, make([]byte, len(w.buffer))...)
		}
		count, err := w.conn.Read(w.buffer[filled:])
		if err != nil {
			return err
		}
		filled += count
	}
}

// nextFrame gives a server's frame, and how many bytes it takes: 0 while it is not complete.
func nextFrame(data []byte) (kind byte, payload []byte, size int) {
	if len(data) < 2 {
		return 0, nil, 0
	}
	length, head := int(data[1]), 2
	switch {
	case length == 126 && len(data) >= 4:
		length, head = int(binary.BigEndian.Uint16(data[2:])), 4
	case length == 127 && len(data) >= 10:
		length, head = int(binary.BigEndian.Uint64(data[2:])), 10
	case length >= 126:
		return 0, nil, 0
	}
	if len(data) < head+length {
		return 0, nil, 0
	}
	return data[0], data[head : head+length], head + length
}

// appendFrame adds a client's frame, masked; its payload is given in parts.
func appendFrame(out []byte, kind byte, parts ...[]byte) []byte {
	size := 0
	for _, part := range parts {
		size += len(part)
	}
	if size < 126 {
		out = append(out, kind, 0x80|byte(size))
	} else {
		out = binary.BigEndian.AppendUint16(append(out, kind, 0x80|126), uint16(size))
	}
	out = append(out, mask[:]...)
	number := 0
	for _, part := range parts {
		for _, each := range part {
			out = append(out, each^mask[number&3])
			number++
		}
	}
	return out
}
