package main

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/client"
)

// frozenBroker takes requests, and does not respond for an hour.
type frozenBroker struct{}

func (frozenBroker) AppendEncoded(ctx context.Context, _ string, _ client.Encoding, _ []byte, _ ...seb.AppendOption) (seb.Appended, error) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Hour):
	}
	return seb.Appended{}, &seb.Error{Code: seb.CodeCanceled, Outcome: seb.Unknown, Err: ctx.Err()}
}

// A response is waited for as long as a retry would be, or for 10 s if that is longer.
func TestProduceWaitsForAResponseAsLongAsItRetries(t *testing.T) {
	for retryFor, want := range map[time.Duration]time.Duration{5 * time.Second: 10 * time.Second, 30 * time.Second: 30 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			p := &producer{cmd: &produceCmd{Topic: "orders", RetryFor: retryFor}, broker: frozenBroker{}}
			p.waits = newWaitNotes(io.Discard, newProgress(io.Discard, 0), "produce orders", retryFor)
			began := time.Now()
			outcome, err := p.sendBatch(t.Context(), &recordBatch{n: 1})
			if took := time.Since(began); outcome != seb.Unknown || seb.CodeOf(err) != client.CodeUnreachable || took != want {
				t.Errorf("--retry-for %v: outcome %q after %v: %v", retryFor, outcome, took, err)
			}
		})
	}
}

// A broker that is stopped accepts connections, since its kernel does, and never responds.
func TestProduceAndImportGiveUpABrokerThatNeverResponds(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for 10 s")
	}
	t.Parallel()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	files, _ := manyOriginals("orders")
	source := files.dir(t)
	imported := make(chan result)
	go func() {
		imported <- runSeb(t, nil, "import", source, "--server", l.Addr().String(), "--retry-for", "1s")
	}()
	began, says := time.Now(), "no response from "+l.Addr().String()+" within 10s"
	produced := runSeb(t, strings.NewReader("one\ntwo\n"), "produce", "orders", "--server", l.Addr().String(), "--retry-for", "1s")
	produced.want(t, exitUnknown, says, "lines 1 to 2 may or may not be in the log")
	(<-imported).want(t, exitUnreachable, says)
	if took := time.Since(began); took > answerMin+10*time.Second {
		t.Errorf("they gave up after %v", took)
	}
}
