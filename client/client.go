package client

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/simple-event-broker/seb"
)

// Options configure a [Client]. The zero value of every field means its default.
type Options struct {
	// Servers are the URLs of brokers of one log, such as http://10.0.0.5:51313. Without a scheme, they
	// mean http. Default: http://127.0.0.1:51313.
	Servers []string
	// APIKey is sent with each request. Default: none.
	APIKey string
	// TLS configures connections to https URLs: certificate authorities, and the client's certificate.
	// Default: the system's authorities.
	TLS *tls.Config
	// RetryFor is how long a request is repeated while brokers can't be reached or ask for a later try. A
	// negative value means that no request is repeated. Default 1 min. RetryFor also bounds how long the client
	// waits for a response, but to no less than 10 s, and the time that a request itself may wait for records or
	// messages comes on top.
	RetryFor time.Duration
	// NoIdempotencyKeys turns off the keys that the client makes for appends and commits. A key takes about
	// 150 bytes of the brokers' memory for 25 hours.
	NoIdempotencyKeys bool
	// UserAgent names the program in the brokers' logs. Default: "seb-client".
	UserAgent string
	// OnRetry, if set, is called before the client waits to repeat a request. err is the error of the last
	// try, and pause how long the client waits. OnRetry must not block.
	OnRetry func(err *seb.Error, pause time.Duration)
	// OnWarning, if set, is called for each response in which a broker warns of an effect that the caller may not
	// expect, or that APIKey was not checked since the log has no API keys. OnWarning must not block.
	OnWarning func(warning string)
}

const (
	serverDefault   = "http://127.0.0.1:51313"
	retryForDefault = time.Minute

	// Brokers keep idle connections longer than this, so that the client closes them first: if a broker closes
	// a connection while a request is on its way, the outcome of the request is unknown.
	idleConnTimeout = 5 * time.Second
	idleConnsMax    = 1000
)

// Client is an [API] whose requests go to brokers in other processes. All methods are safe for concurrent use.
type Client struct {
	opts     Options
	servers  []*url.URL
	current  atomic.Int32 // the index of the server that gets the next request
	http     *http.Client
	silence  time.Duration // silenceMax, except in tests
	probes   *http.Client  // opens a connection for each request
	probing  singleflight.Group
	silences silences
	life     context.Context //nolint:containedctx // the streams of followers, which outlast calls, end with it
	end      context.CancelFunc
}

var _ API = (*Client)(nil)

// New checks the options and returns a client. The client connects when it sends its first request. Errors
// have CodeInvalidRequest.
func New(o Options) (*Client, error) {
	if len(o.Servers) == 0 {
		o.Servers = []string{serverDefault}
	}
	if o.RetryFor == 0 {
		o.RetryFor = retryForDefault
	}
	if o.UserAgent == "" {
		o.UserAgent = "seb-client"
	}
	if strings.ContainsFunc(o.APIKey, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, invalid("the API key has characters that no API key can have", "give the key as seb key create showed it")
	}
	if strings.ContainsFunc(o.UserAgent, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		return nil, invalid(fmt.Sprintf("the user agent %.80q has characters that an HTTP header can't have", o.UserAgent), "")
	}
	c := &Client{opts: o, silence: silenceMax, silences: silences{heard: map[*url.URL]time.Time{}, since: map[*url.URL]time.Time{}}}
	c.life, c.end = context.WithCancel(context.Background())
	for _, s := range o.Servers {
		u, err := parseServer(s)
		if err != nil {
			return nil, err
		}
		c.servers = append(c.servers, u)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.IdleConnTimeout = idleConnTimeout
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = idleConnsMax, idleConnsMax
	transport.TLSClientConfig = o.TLS
	fresh := transport.Clone()
	fresh.DisableKeepAlives = true
	c.probes = &http.Client{Transport: fresh, CheckRedirect: noRedirect}
	c.http = &http.Client{
		Transport: transport,
		// Redirects are not followed: after most redirects of a POST, Go's client sends a GET, and an append
		// would become a read.
		CheckRedirect: noRedirect,
	}
	return c, nil
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// parseServer parses the URL of a broker. host:port means http.
func parseServer(s string) (*url.URL, error) {
	full := s
	if !strings.Contains(s, "://") {
		full = "http://" + s
	}
	u, err := url.Parse(full)
	switch {
	case err != nil, u.Host == "", u.Scheme != "http" && u.Scheme != "https":
		return nil, invalid(fmt.Sprintf("invalid URL %q of a broker", withoutSecrets(s)), "use the form http://HOST:PORT or https://HOST:PORT")
	case u.User != nil, u.RawQuery != "", u.Fragment != "":
		return nil, invalid(fmt.Sprintf("the URL of the broker at %s has a user, a query (?...) or a fragment (#...)", u.Host), "use the form http://HOST:PORT or https://HOST:PORT, and give an API key as a setting of its own, not in the URL")
	}
	u.Path = strings.TrimRight(u.Path, "/")
	return u, nil
}

// withoutSecrets returns the text of a URL without what may be a secret: what stands before an @ or after a ?.
func withoutSecrets(s string) string {
	s, _, _ = strings.Cut(s, "?")
	if _, after, found := strings.Cut(s, "@"); found {
		return "...@" + after
	}
	return s
}

// Close ends reads, waits and the streams of followers. They and all later calls fail with CodeBrokerClosed. Writes
// that are under way go on, but are not repeated.
func (c *Client) Close() error {
	c.end()
	c.http.CloseIdleConnections()
	return nil
}

func invalid(detail, hint string) error {
	return &seb.Error{Code: seb.CodeInvalidRequest, Detail: detail, Hint: hint}
}
