package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/client"
)

// serverFlag has the flags for the broker's URL and the API key, for every command that talks to a broker.
type serverFlag struct {
	Server         string `group:"broker" default:"${server}" placeholder:"URL" help:"The broker's URL (default ${default}); HOST:PORT means http."`
	APIKey         string `group:"broker" name:"api-key" env:"SEB_API_KEY,SEB_KEY" placeholder:"KEY" help:"API key; better in the environment, as SEB_API_KEY, where other users don't see it (default: none)."`
	APIKeyFile     string `group:"broker" name:"api-key-file" aliases:"key-file" env:"SEB_API_KEY_FILE,SEB_KEY_FILE" type:"existingfile" placeholder:"FILE" help:"Read the API key from FILE; on the command line it takes precedence over SEB_API_KEY (default: none)."`
	clientTLSFlags `group:"broker"`

	warn func(warning string) // tells a broker's warning on standard error, once; nil in tests
}

// defaultServer is the default of --server.
const defaultServer = "http://127.0.0.1:51313"

// at says in a question where the broker is, if that is not the default.
func (f serverFlag) at() string {
	if f.Server == defaultServer {
		return ""
	}
	return " at " + f.Server
}

// AfterApply is called by Kong once it has set the flags.
func (f *serverFlag) AfterApply(std streams) error {
	var told sync.Map
	f.warn = func(warning string) {
		if _, before := told.LoadOrStore(warning, true); !before {
			note(std.err, "warning: %s\n", oneLine(warning))
		}
	}
	return nil
}

// apiKey returns the API key to send, "" if none was given.
func (f serverFlag) apiKey() (string, error) {
	key := f.APIKey
	if key == "" && f.APIKeyFile != "" {
		b, err := os.ReadFile(f.APIKeyFile)
		if err != nil {
			return "", fmt.Errorf("read the API key: %w", err)
		}
		if key = strings.TrimSpace(string(b)); key == "" {
			return "", usage(fmt.Errorf("--api-key-file: %s is empty", f.APIKeyFile))
		}
	}
	key = strings.TrimSpace(key)
	if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", usage(errors.New("the API key has a space, a line break or another character that no API key can have: check SEB_API_KEY, --api-key, or the file that --api-key-file names"))
	}
	return key, nil
}

// client checks the flags and returns a client, which connects when it sends its first request. It repeats no
// request: most commands report the first error, and the others have their own rules.
func (f serverFlag) client(opts ...func(*client.Options)) (*client.Client, error) {
	key, err := f.apiKey()
	if err != nil {
		return nil, err
	}
	tls, err := f.config()
	if err != nil {
		return nil, err
	}
	o := client.Options{Servers: []string{f.Server}, APIKey: key, TLS: tls, RetryFor: -1, NoIdempotencyKeys: true, UserAgent: "seb/" + version(), OnWarning: f.warn}
	for _, opt := range opts {
		opt(&o)
	}
	c, err := client.New(o)
	if e, ok := errors.AsType[*seb.Error](err); ok {
		return nil, usage(hinted(fmt.Errorf("--server: %s", e.Detail), e.Hint))
	}
	return c, err
}

// unsure returns err, the error of a request. If the request may have changed something despite the error,
// unsure adds a hint how to check.
func unsure(err error, check string) error {
	if e, ok := errors.AsType[*seb.Error](err); ok && e.Outcome == seb.Unknown {
		return hinted(err, "the request may have been carried out: check with "+check+" before you try again")
	}
	return err
}
