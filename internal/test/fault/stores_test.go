package fault_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/test/s3test"
	"github.com/simple-event-broker/seb/objstore"
)

// ledger keeps what was acknowledged. It is safe for concurrent use.
type ledger struct {
	mu sync.Mutex
	at map[seb.Offset]string
}

func (l *ledger) acked(t *testing.T, at seb.Offset, v string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if other, ok := l.at[at]; ok {
		t.Errorf("offset %d was acknowledged for %.20q and for %.20q", at, other, v)
	}
	l.at[at] = v
}

func (l *ledger) check(t *testing.T, got []string) {
	t.Helper()
	seen := map[string]bool{}
	for _, v := range got {
		if seen[v] {
			t.Errorf("%.20q is there twice", v)
		}
		seen[v] = true
	}
	for at, v := range l.at {
		if int(at) >= len(got) || got[at] != v {
			t.Errorf("%.20q was acknowledged at %d and is not there", v, at)
		}
	}
}

// TestKilledBrokersOnEachStore runs three brokers that write to one bucket. Two of them are killed
// under load and replaced.
func TestKilledBrokersOnEachStore(t *testing.T) {
	stores := map[string]func(t *testing.T) func() objstore.Store{
		"memory": func(*testing.T) func() objstore.Store {
			m := objstore.NewMemory()
			return func() objstore.Store { return m }
		},
		"directory": func(t *testing.T) func() objstore.Store {
			dir := t.TempDir()
			return func() objstore.Store {
				s, err := objstore.OpenDir(dir)
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
		},
		"S3 in process": func(t *testing.T) func() objstore.Store {
			url := s3test.Fake(t)
			return func() objstore.Store { return s3test.Open(t, url) }
		},
		"S3 server": func(t *testing.T) func() objstore.Store {
			url := s3test.VersityGW(t)
			return func() objstore.Store { return s3test.Open(t, url) }
		},
	}
	for name, newStore := range stores {
		t.Run(name, func(t *testing.T) {
			store := newStore(t)
			opts := seb.Options{Batching: seb.Immediate(), CheckpointCommits: 10}
			steady := open(t, store(), opts)
			mustCreateTopic(t, steady, "t", 1)
			book := ledger{at: map[seb.Offset]string{}}
			var wg sync.WaitGroup
			load := func(b *seb.Broker, who string, n int) {
				wg.Go(func() {
					for i := range n {
						v := fmt.Sprintf("%s %d", who, i)
						if i%10 == 5 {
							v = large(v, 5<<20)
						}
						a, err := b.Append(t.Context(), "t", values(v))
						if err != nil {
							return
						}
						book.acked(t, a.Ranges[0].Offset, v)
					}
				})
			}
			load(steady, "steady", 20)
			for round := range 2 {
				dying := openOnly(t, store(), opts)
				load(dying, fmt.Sprintf("dying %d.0", round), 1000)
				load(dying, fmt.Sprintf("dying %d.1", round), 1000)
				for i := range 3 { // the broker is killed after it has done something
					mustAppend(t, dying, "other", fmt.Sprintf("%d.%d", round, i))
				}
				kill(t, dying)
			}
			wg.Wait()
			book.check(t, readAll(t, open(t, store(), opts), "t", 0))
		})
	}
}

func TestS3ServerThatDiesAndComesBack(t *testing.T) {
	server := s3test.Start(t)
	store := s3test.Open(t, server.URL)
	b := open(t, store, seb.Options{Batching: seb.Immediate()})
	mustCreateTopic(t, b, "t", 1)
	book := ledger{at: map[seb.Offset]string{}}
	var wg sync.WaitGroup
	end := time.Now().Add(3 * time.Second)
	for c := range 3 {
		wg.Go(func() {
			for i := 0; time.Now().Before(end); i++ {
				v := fmt.Sprintf("%d.%d", c, i)
				a, err := b.Append(t.Context(), "t", values(v))
				if err != nil {
					t.Error(err) // the default timeout of 30 s is enough
					return
				}
				book.acked(t, a.Ranges[0].Offset, v)
			}
		})
	}
	for range 3 {
		mustAppend(t, b, "other", "v")
		server.Kill()
		server.Restart()
	}
	wg.Wait()
	book.check(t, readAll(t, open(t, store, seb.Options{}), "t", 0))
}
