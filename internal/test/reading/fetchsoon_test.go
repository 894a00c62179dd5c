package reading_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// A long read over a slow store returns the first records soon. Reads that go on from there get all
// records.
func TestLongReadReturnsWhatIsThereAfterASecond(t *testing.T) {
	const commits = 1500
	for name, delay := range map[string]time.Duration{"slow": 100 * time.Millisecond, "slower than the wait": 1500 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory, faulty := newFaulty()
				opts := immediate()
				opts.CheckpointCommits = 100 // so that the other broker starts from a checkpoint, and caches little
				writer := open(t, memory, opts)
				for i := range commits {
					mustAppend(t, writer, "t", fmt.Sprint(i))
				}
				synctest.Wait()
				b := open(t, faulty, immediate())
				defer faulty.On(objstore.VerbGet, format.LogPrefix, storetest.Delay(delay))()
				var got, reads int
				for got < commits {
					began := time.Now()
					f, err := b.Fetch(t.Context(), "t", 0, seb.At(seb.Offset(got)), seb.FetchOptions{Limit: commits})
					if err != nil {
						t.Fatal(err)
					}
					if took := time.Since(began); took > 2*delay+time.Second {
						t.Fatalf("the read at offset %d took %v, for %d records", got, took, len(f.Records))
					}
					for i, r := range f.Records {
						if string(r.Value) != fmt.Sprint(got+i) {
							t.Fatalf("record %d is %q", got+i, r.Value)
						}
					}
					if len(f.Records) == 0 || int(f.Next) != got+len(f.Records) {
						t.Fatalf("%d records at offset %d, and %d is next", len(f.Records), got, f.Next)
					}
					got += len(f.Records)
					reads++
				}
				if most := max(2*int(commits/16*delay/time.Second), commits/16+1); reads > most {
					t.Errorf("it took %d reads, want %d at most", reads, most)
				}
			})
		})
	}
}
