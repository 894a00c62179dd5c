package push

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/simple-event-broker/seb/internal/httprecord"
)

// Bounds on the times of a target's connections, and on the bytes that the target may send.
const (
	connectMax      = 10 * time.Second
	idleMax         = 90 * time.Second
	silenceMax      = 15 * time.Second // the HTTP/2 client pings a target that has sent nothing for this long
	answerHeaderMax = 32 << 10
	streamBytesMax  = 64 << 10 // how much of a response's body HTTP/2 keeps in memory
)

// client sends messages to one target.
type client struct {
	target    Target
	header    http.Header // sent with each request
	signer    signer
	identity  identity
	transport *http.Transport
}

// identity names the queue that messages come from.
type identity struct{ topic, topicID, queue string }

// newClient returns a client for t. The caller has checked t and filled in the defaults.
func newClient(t Target, o Options) (*client, error) {
	header, err := checkHeaders(t.Headers)
	if err != nil {
		return nil, err
	}
	s, err := parseSecret(t.Secret)
	if err != nil {
		return nil, err
	}
	return &client{target: t, header: header, signer: s, identity: identity{o.Topic, o.TopicID, o.Queue}, transport: newTransport(t, o)}, nil
}

// newTransport returns a transport that uses the operator's proxy, if there is one. A transport, unlike an
// [http.Client], follows no redirects and keeps no cookies.
func newTransport(t Target, o Options) *http.Transport {
	dialer := &net.Dialer{Timeout: connectMax, Resolver: o.Resolver}
	tr := &http.Transport{
		DialContext:            dialer.DialContext,
		ForceAttemptHTTP2:      true,
		TLSClientConfig:        &tls.Config{RootCAs: o.RootCAs, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    connectMax,
		MaxIdleConns:           t.MaxInFlight,
		MaxIdleConnsPerHost:    t.MaxInFlight,
		IdleConnTimeout:        idleMax,
		DisableCompression:     true, // a decompressed body could be of any size
		MaxResponseHeaderBytes: answerHeaderMax,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: silenceMax, PingTimeout: silenceMax,
			MaxReceiveBufferPerStream: streamBytesMax, MaxReceiveBufferPerConnection: 1 << 20,
		},
	}
	if o.Proxy != nil {
		tr.Proxy = http.ProxyURL(o.Proxy)
	} else {
		dialer.ControlContext = o.Networks.guard
		tr.DialContext = o.Networks.guarded(dialer.DialContext)
	}
	if o.Dial != nil {
		tr.DialContext = o.Dial
	}
	return tr
}

// send makes one request for a message, and returns the result.
func (c *client) send(ctx context.Context, m *Message) answer {
	ctx, cancel := context.WithTimeout(ctx, c.target.Timeout)
	defer cancel()
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	r, err := c.request(ctx, m, time.Now())
	if err != nil {
		return unanswered(err, true, false, 0)
	}
	got, err := c.transport.RoundTrip(r)
	if err != nil {
		late := ctx.Err() == context.DeadlineExceeded
		if ctx.Err() != nil && !late {
			return answer{outcome: Abandoned, err: err}
		}
		return unanswered(err, connected.Load(), late, c.target.Timeout)
	}
	defer got.Body.Close()
	var said []byte
	if got.StatusCode != http.StatusSwitchingProtocols { // after a 101, Body is the raw connection: a read from it does not end when ctx ends
		said = someOf(got.Body, cancel)
	}
	return judge(got, said, time.Now())
}

// someOf returns the first bytes of a response's body. It reads a short body to its end, so that the
// connection can be reused. It ignores read errors, since the status alone decides the outcome.
func someOf(body io.Reader, giveUp context.CancelFunc) []byte {
	defer time.AfterFunc(bodyWait, giveUp).Stop()
	var b bytes.Buffer
	_, _ = io.Copy(&b, io.LimitReader(body, bodyBytesMax+1))
	return b.Bytes()[:min(b.Len(), bodyBytesMax)]
}

// request returns the POST request for a message. The request has the record in the same form as an
// answer of the HTTP API that returns one record. More headers name the queue, the record and the attempt.
func (c *client) request(ctx context.Context, m *Message, now time.Time) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.target.URL, bytes.NewReader(m.Value))
	if err != nil {
		return nil, fmt.Errorf("make a request: %w", err)
	}
	r.Header.Set("User-Agent", "seb")
	for name, values := range c.header {
		r.Header[name] = values
	}
	otherwise := c.header.Get("Content-Type")
	if otherwise == "" {
		otherwise = "application/octet-stream"
	}
	r.Header.Set("Content-Type", httprecord.MediaType(m.headers(), otherwise))
	httprecord.Describe(r.Header, m.Key, m.Timestamp, m.LogTime, m.headers())
	r.Header.Set("Seb-Topic", c.identity.topic)
	r.Header.Set("Seb-Topic-Id", c.identity.topicID)
	r.Header.Set("Seb-Queue", c.identity.queue)
	r.Header.Set("Seb-Partition", strconv.FormatInt(int64(m.Partition), 10))
	r.Header.Set("Seb-Offset", strconv.FormatInt(int64(m.Offset), 10))
	r.Header.Set("Seb-Attempt", strconv.Itoa(m.Attempt))

	id, seconds := c.identity.of(m), now.Unix()
	r.Header.Set("Webhook-Id", id)
	r.Header.Set("Webhook-Timestamp", strconv.FormatInt(seconds, 10))
	r.Header.Set("Webhook-Signature", c.signer.sign(id, seconds, m.Value))
	return r, nil
}

// of returns a message's webhook-id, which is the same for all attempts of its record. The id has no
// full stop, because a full stop separates the id from the rest of the signed text.
func (i identity) of(m *Message) string {
	return fmt.Sprintf("%s-%d-%d", strings.ReplaceAll(i.topicID, ".", "-"), m.Partition, m.Offset)
}
