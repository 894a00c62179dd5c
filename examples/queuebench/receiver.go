package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// receiver is a worker of a Seb queue. It writes HTTP requests to a connection of its own
// instead of using the client of net/http. On a small machine the client of net/http would
// take more CPU time than the broker, and the broker is what is measured.
type receiver struct {
	conn net.Conn
	in   *bufio.Reader
	head string // the end of the request line, and the headers, which are the same in every request
	out  []byte
}

// both is a receiver that finishes messages with the request that receives the next
// messages.
type both struct {
	*receiver
	tokens []string // tokens of the messages to finish
}

func (b *both) Take(_ context.Context, most int) (tokens []string, finished int, _ error) {
	tokens, err := b.receive(receiving{Max: most, Ack: b.tokens}) // no Wait, since a wait would also delay the confirmation of b.tokens
	finished, b.tokens = len(b.tokens), nil
	return tokens, finished, err
}

// Done leaves the messages for the next Take to finish.
func (b *both) Done(_ context.Context, tokens []string) (finished int, err error) {
	b.tokens = tokens
	return 0, nil
}

// Worker returns a worker with a connection of its own.
func (s *seb) Worker(ctx context.Context) (worker, error) {
	r, err := s.connect(ctx)
	if err != nil || !s.oneRequest {
		return r, err
	}
	return &both{receiver: r}, nil
}

func (s *seb) connect(ctx context.Context) (*receiver, error) {
	at, err := url.Parse(s.url)
	if err != nil {
		return nil, err
	}
	dialer := net.Dialer{Timeout: requestTimeout}
	dial, port := dialer.DialContext, "80"
	if at.Scheme == "https" {
		dial, port = (&tls.Dialer{NetDialer: &dialer}).DialContext, "443"
	}
	if at.Port() != "" {
		port = at.Port()
	}
	conn, err := dial(ctx, "tcp", net.JoinHostPort(at.Hostname(), port))
	if err != nil {
		return nil, err
	}
	head := " HTTP/1.1\r\nHost: " + at.Host + "\r\nContent-Type: application/json\r\n"
	if key := strings.TrimSpace(cmp.Or(os.Getenv("SEB_API_KEY"), os.Getenv("SEB_KEY"))); key != "" {
		head += "Authorization: Bearer " + key + "\r\n"
	}
	return &receiver{conn: conn, in: bufio.NewReader(conn), head: head}, nil
}

// receiving and acking are the bodies of a worker's requests.
type (
	receiving struct {
		Max  int      `json:"max"`
		Wait string   `json:"wait,omitempty"`
		Ack  []string `json:"ack,omitempty"`
	}
	acking struct {
		Tokens []string `json:"tokens"`
	}
)

func (r *receiver) Take(_ context.Context, most int) ([]string, int, error) {
	tokens, err := r.receive(receiving{Max: most, Wait: receiveWait})
	return tokens, 0, err
}

func (r *receiver) receive(asked receiving) (tokens []string, _ error) {
	var received struct{ Messages []struct{ Token string } }
	if err := r.post("/receive", asked, &received); err != nil {
		return nil, err
	}
	for _, m := range received.Messages {
		tokens = append(tokens, m.Token)
	}
	return tokens, nil
}

func (r *receiver) Done(_ context.Context, tokens []string) (finished int, err error) {
	return len(tokens), r.post("/ack", acking{tokens}, nil)
}

func (r *receiver) Close() error { return r.conn.Close() }

// post sends a request about the queue, and decodes the answer unless into is nil.
func (r *receiver) post(what string, asked, into any) error {
	body, err := json.Marshal(asked)
	if err != nil {
		return err
	}
	if err := r.conn.SetDeadline(time.Now().Add(requestTimeout)); err != nil {
		return err
	}
	r.out = fmt.Appendf(r.out[:0], "POST %s%s%sContent-Length: %d\r\n\r\n%s", queuePath, what, r.head, len(body), body)
	if _, err := r.conn.Write(r.out); err != nil {
		return err
	}
	res, err := http.ReadResponse(r.in, nil)
	if err != nil {
		return err
	}
	answer, err := io.ReadAll(res.Body)
	if err := errors.Join(err, res.Body.Close()); err != nil {
		return err
	}
	if res.StatusCode/100 != 2 {
		return &refusal{res.StatusCode, fmt.Sprintf("POST %s: %s: %s", what, res.Status, answer)}
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(answer, into)
}
