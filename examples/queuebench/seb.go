package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/simple-event-broker/seb/examples/internal/servers"
)

const (
	topicPath = "/v1/topics/queuebench"
	queuePath = topicPath + "/queues/work"

	fillRecords    = 10_000 // records per request
	requestTimeout = time.Minute
	receiveWait    = "1s"
)

// seb is a queue of a broker.
type seb struct {
	url   string
	own   *servers.Seb // the broker that this program has started; nil if it uses a running broker
	dir   string       // the directory with the files of own
	flags []string     // flags of seb serve

	oneRequest bool // workers receive and acknowledge with one request
}

func openSeb(ctx context.Context, o options) (side, error) { return (&seb{}).open(ctx, o) }

func openSebImmediate(ctx context.Context, o options) (side, error) {
	return (&seb{flags: []string{"--batch", "immediate"}}).open(ctx, o)
}

func openSebOneRequest(ctx context.Context, o options) (side, error) {
	return (&seb{flags: []string{"--batch", "immediate"}, oneRequest: true}).open(ctx, o)
}

func (s *seb) open(ctx context.Context, o options) (side, error) {
	if s.url = o.seb; s.url != "" {
		return s, nil
	}
	var err error
	if s.dir, err = os.MkdirTemp("", "seb-queuebench-"); err != nil {
		return nil, err
	}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.Close(), s.Remove())
	}
	return s, nil
}

func (s *seb) start(ctx context.Context) error {
	binary, err := servers.Build(ctx, servers.SebProgram, s.dir)
	if err != nil {
		return err
	}
	if s.own, err = servers.StartSeb(ctx, binary, s.dir+"/log", s.flags...); err != nil {
		return err
	}
	s.url = s.own.URL
	return nil
}

func (s *seb) Close() error {
	if s.own != nil {
		s.own.Kill() // the broker's data is not needed any longer
	}
	return nil
}

func (s *seb) Remove() error {
	if s.dir == "" {
		return nil
	}
	return os.RemoveAll(s.dir)
}

// Fill creates the topic and its queue again, and appends messages.
func (s *seb) Fill(ctx context.Context, messages [][]byte) error {
	if err := s.do(ctx, http.MethodDelete, topicPath, nil, nil); err != nil && !isNotFound(err) {
		return err
	}
	for chunk := range slices.Chunk(messages, fillRecords) {
		if err := s.do(ctx, http.MethodPost, topicPath+"/records", ndjson(bytes.Join(chunk, []byte("\n"))), nil); err != nil {
			return err
		}
	}
	return s.do(ctx, http.MethodPut, queuePath, map[string]any{"lease": "30s", "from": "earliest"}, nil)
}

func (s *seb) Describe(ctx context.Context) (string, error) {
	var version map[string]any
	if err := s.do(ctx, http.MethodGet, "/v1/version", nil, &version); err != nil {
		return "", err
	}
	text, err := json.Marshal(version)
	if err != nil {
		return "", err
	}
	store := "the store of that broker"
	if s.own != nil {
		store = fmt.Sprintf("a directory, with the defaults of `seb serve` but for %q", s.flags)
	}
	return fmt.Sprintf("%s, over %s, on %s", text, s.url, store), nil
}

// ndjson is a request body with one record per line.
type ndjson []byte

// refusal is an answer with a status other than 2xx.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

func isNotFound(err error) bool {
	var r *refusal
	return errors.As(err, &r) && r.status == http.StatusNotFound
}

// do sends a request. body may be ndjson, a value to send as JSON, or nil. do decodes
// the answer unless into is nil.
func (s *seb) do(ctx context.Context, method, path string, body, into any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	kind := "application/json"
	content, records := body.(ndjson)
	if records {
		kind = "application/x-ndjson"
	} else if body != nil {
		var err error
		if content, err = json.Marshal(body); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(content))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", kind)
	if key := strings.TrimSpace(cmp.Or(os.Getenv("SEB_API_KEY"), os.Getenv("SEB_KEY"))); key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode/100 != 2 {
		return &refusal{res.StatusCode, fmt.Sprintf("%s %s: %s: %s", method, path, res.Status, answer)}
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(answer, into)
}
