package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// throttledSteps is how many pieces a throttled client sends or reads in a second.
const throttledSteps = 4

// throttled is a client that sends a body, or reads an answer, slowly.
type throttled struct {
	method, path, contentType string
	encoding                  string // the Content-Encoding; "" for none
	start                     string // the beginning of the body
	size                      int    // bytes of the body
	atOnce                    int    // how many bytes of the body are sent first, at full speed
	sendRate, readRate        int    // bytes per second; a readRate of 0 means no limit
	hasty                     bool   // repeats a refused request at once
}

// once sends one request to b over a new connection, reads the whole answer, and returns the answer's status.
func (t throttled) once(ctx context.Context, b *broker) (status int, err error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(b.url, "http://"))
	if err != nil {
		return 0, err
	}
	closeConn := func() { _ = conn.Close() } // whatever was not sent or read by then does not matter
	defer closeConn()
	defer context.AfterFunc(ctx, closeConn)()
	if t.readRate > 0 {
		// A receive buffer of the default size would hold most of the answer, and the client would look fast
		// to the broker.
		if err := conn.(*net.TCPConn).SetReadBuffer(t.readRate / throttledSteps); err != nil {
			return 0, err
		}
	}
	var sending sync.WaitGroup
	defer sending.Wait()
	ended, end := context.WithCancel(ctx)
	defer end()
	sending.Go(func() { _ = t.send(ended, conn, b.key) }) // if sending fails, the answer says why
	answer := io.Reader(conn)
	if t.readRate > 0 {
		answer = &slowReader{ctx: ctx, conn: conn, most: t.readRate / throttledSteps}
	}
	resp, err := http.ReadResponse(bufio.NewReaderSize(answer, 4096), nil)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

func (t throttled) send(ctx context.Context, conn net.Conn, key string) error {
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: growth\r\nConnection: close\r\n", t.method, t.path)
	if key != "" {
		head += "Authorization: Bearer " + key + "\r\n"
	}
	if t.size > 0 {
		head += fmt.Sprintf("Content-Type: %s\r\nContent-Length: %d\r\n", t.contentType, t.size)
	}
	if t.encoding != "" {
		head += "Content-Encoding: " + t.encoding + "\r\n"
	}
	if _, err := io.WriteString(conn, head+"\r\n"+t.start); err != nil {
		return err
	}
	piece := strings.Repeat("x", 64<<10)
	for sent := len(t.start); sent < t.size; {
		n := min(len(piece), t.size-sent)
		if sent >= t.atOnce {
			n = min(n, t.sendRate/throttledSteps)
			pause(ctx, time.Duration(float64(n)/float64(t.sendRate)*float64(time.Second)))
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
		if _, err := io.WriteString(conn, piece[:n]); err != nil {
			return err
		}
		sent += n
	}
	return nil
}

// slowReader reads pieces of up to most bytes, throttledSteps of them per second.
type slowReader struct {
	ctx  context.Context //nolint:containedctx // io.Reader has no ctx parameter, and the reader is used for one request
	conn net.Conn
	most int
	left int // bytes left of the current piece
}

func (r *slowReader) Read(p []byte) (int, error) {
	if r.left == 0 {
		pause(r.ctx, time.Second/throttledSteps)
		r.left = r.most
	}
	n, err := r.conn.Read(p[:min(len(p), r.left)])
	r.left -= n
	return n, err
}

// statuses counts the answers to throttled clients by status; 0 stands for a lost connection.
type statuses struct {
	mu     sync.Mutex
	counts map[int]int
}

// beset runs do while throttled clients send requests, one client for each element of as, with its API key. Each
// client sends one request after the other, each over a new connection, and waits for a second after a lost
// connection, and, unless it is hasty, after a refusal. beset returns the statuses of the requests that ended before
// do returned.
func beset(ctx context.Context, as []*broker, client throttled, do func()) string {
	ctx, cancel := context.WithCancel(ctx)
	all := statuses{counts: map[int]int{}}
	var clients sync.WaitGroup
	for _, b := range as {
		clients.Go(func() {
			for ctx.Err() == nil {
				status, _ := client.once(ctx, b) // a lost connection has no status
				if ctx.Err() != nil {
					return
				}
				all.mu.Lock()
				all.counts[status]++
				all.mu.Unlock()
				if status >= 400 && !client.hasty || status == 0 {
					pause(ctx, time.Second)
				}
			}
		})
	}
	pause(ctx, 2*time.Second) // after that time the throttled clients make the broker hold as much memory as they can
	do()
	cancel()
	clients.Wait()
	return fmt.Sprintf("answers to the other clients, by status: %v", all.counts)
}
