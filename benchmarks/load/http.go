package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

var lengthMark = []byte("content-length:")

// httpConnection sends requests one after the other over a connection that is kept.
type httpConnection struct {
	*flow
	peer   *Peer
	conn   net.Conn
	reader *bufio.Reader
	body   []byte
}

func dialHTTP(f *flow, peer *Peer) (*httpConnection, error) {
	conn, err := net.Dial("tcp", f.address)
	if err != nil {
		return nil, err
	}
	return &httpConnection{flow: f, peer: peer, conn: conn, reader: bufio.NewReaderSize(conn, 1<<16)}, nil
}

func (h *httpConnection) close() { h.conn.Close() }

func (h *httpConnection) run() {
	var err error
	for number := 0; err == nil && !h.stop.Load(); number++ {
		request := []byte(h.peer.Requests[number%len(h.peer.Requests)])
		sent := time.Now()
		if h.peer.Kind == "fetch" {
			err = h.fetch(request)
		} else if err = h.exchange(request, nil); err == nil && h.peer.Measured {
			h.meter.add(1)
		}
		if h.peer.Measured {
			h.meter.took(time.Since(sent))
		}
	}
	if err != nil && !h.end.Load() {
		h.meter.failed.Add(1)
	}
}

// fetch asks for messages and acknowledges what came in one request, where the group has a path for that: id by id, or with
// the group's text if it says what to count. Messages are counted.
func (h *httpConnection) fetch(request []byte) error {
	h.body = h.body[:0]
	if err := h.exchange(request, &h.body); err != nil {
		return err
	}
	list, count := []byte(`{"messageIds":[`), 0
	if counts := []byte(h.peer.Counts); len(counts) > 0 {
		count, list = bytes.Count(h.body, counts), []byte(h.peer.Text)
	}
	for rest, found := h.body, h.peer.Counts == ""; found; count++ {
		if _, rest, found = bytes.Cut(rest, idMark); !found {
			break
		}
		if count > 0 {
			list = append(list, ',')
		}
		list = append(append(append(list, '"'), rest[:bytes.IndexByte(rest, '"')]...), '"')
	}
	if count == 0 {
		return nil
	}
	if h.peer.Path != "" {
		if h.peer.Counts == "" {
			list = append(list, "]}"...)
		}
		head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
			"Content-Length: %d\r\n\r\n", h.peer.Path, len(list))
		if err := h.exchange(append([]byte(head), list...), nil); err != nil {
			return err
		}
	}
	if h.peer.Measured {
		h.meter.add(count)
	}
	return nil
}

// exchange sends a request and reads its answer, whose body is added to `body` where it is wanted.
func (h *httpConnection) exchange(request []byte, body *[]byte) error {
	if _, err := h.conn.Write(request); err != nil {
		return err
	}
	length, good := 0, false
	for first := true; ; first = false {
		line, err := h.reader.ReadSlice('\n')
		if err != nil {
			return err
		}
		if first {
			good = bytes.HasPrefix(line, []byte("HTTP/1.1 2"))
		} else if len(line) == 2 {
			break
		} else if len(line) > len(lengthMark) && bytes.EqualFold(line[:len(lengthMark)], lengthMark) {
			length, err = strconv.Atoi(string(bytes.TrimSpace(line[len(lengthMark):])))
			if err != nil {
				return err
			}
		}
	}
	if !good {
		h.meter.failed.Add(1)
	}
	if body == nil {
		_, err := h.reader.Discard(length)
		return err
	}
	at := len(*body)
	*body = append(*body, make([]byte, length)...)
	_, err := io.ReadFull(h.reader, (*body)[at:])
	return err
}
