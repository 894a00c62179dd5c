package reading_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

// firstAtTime returns the offset that AtTime promises, by looking at every record.
func firstAtTime(all []seb.Record, at time.Time) seb.Offset {
	for i, r := range all {
		if !r.Timestamp.Before(at) {
			return seb.Offset(i)
		}
	}
	return seb.Offset(len(all))
}

func wantAtTime(t *testing.T, b *seb.Broker, all []seb.Record, at time.Time) {
	t.Helper()
	f, err := b.Fetch(t.Context(), "t", 0, seb.AtTime(at), seb.FetchOptions{Limit: 1})
	if err != nil {
		t.Fatalf("at %v: %v", at, err)
	}
	want := firstAtTime(all, at)
	if got := f.Next - seb.Offset(len(f.Records)); got != want || len(f.Records) == 0 && f.Next != f.End {
		t.Errorf("at %d ms + %d ns: offset %d, want %d", at.UnixMilli(), at.Nanosecond()%1e6, got, want)
	}
}

// Appenders choose the timestamps, so these may repeat and go back, within a batch and between
// batches.
func TestTimeFindsTheFirstRecordAtOrAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		opts := immediate()
		opts.CheckpointCommits = 2
		b := open(t, store, opts)
		mustCreateTopic(t, b, "t", 1)
		wantAtTime(t, b, nil, time.UnixMilli(0)) // an empty partition

		var all []seb.Record
		for _, ms := range [][]int64{{500, 100, 900, 300}, {200}, {900, 901, 50}, {700}, {1000, 950, 1000, 2000}, {10}} {
			if _, err := b.Append(t.Context(), "t", timed(ms...)); err != nil {
				t.Fatal(err)
			}
			all = append(all, timed(ms...)...)
		}
		another := open(t, store, opts)
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		reopened := open(t, store, opts) // a broker that started from a checkpoint
		for _, b := range []*seb.Broker{another, reopened} {
			for ms := int64(-10); ms < 2010; ms += 10 {
				wantAtTime(t, b, all, time.UnixMilli(ms))
			}
			for _, ms := range []int64{0, 100, 499, 500, 900, 901, 1999, 2000, 2001} {
				wantAtTime(t, b, all, time.UnixMilli(ms).Add(time.Nanosecond))
				wantAtTime(t, b, all, time.UnixMilli(ms).Add(-time.Nanosecond))
			}
			wantAtTime(t, b, all, time.Time{})
			wantAtTime(t, b, all, time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC))
		}
	})
}

func TestTimeSeesWhatAnotherBrokerAppended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		a, b := open(t, store, immediate()), open(t, store, immediate())
		all := timed(1000, 2000)
		if _, err := a.Append(t.Context(), "t", all[:1]); err != nil {
			t.Fatal(err)
		}
		wantAtTime(t, b, all[:1], time.UnixMilli(500))
		if _, err := a.Append(t.Context(), "t", all[1:]); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second) // b's last sync is too old to tell where the log ends
		wantAtTime(t, b, all, time.UnixMilli(1500))
	})
}

// A time after the last record means the end of the partition. From there, a read goes on with
// whatever comes next.
func TestTimeAfterTheLastRecordWaitsAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, objstore.NewMemory(), immediate())
		mustAppend(t, b, "t", "old")
		got := make(chan seb.Fetched)
		go func() {
			f, err := b.Fetch(t.Context(), "t", 0, seb.AtTime(time.Now().Add(time.Hour)), seb.FetchOptions{Wait: time.Minute})
			if err != nil {
				t.Error(err)
			}
			got <- f
		}()
		synctest.Wait()
		mustAppend(t, b, "t", "new")
		if f := <-got; len(f.Records) != 1 || f.Records[0].Offset != 1 {
			t.Errorf("got %+v", f.Records)
		}
	})
}

func TestPositionsAreReadAsTheyAreWritten(t *testing.T) {
	for s, want := range map[string]seb.Position{
		"2026-01-31T12:00:00Z":            seb.AtTime(time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)),
		"2026-01-31T13:00:00.25+01:00":    seb.AtTime(time.Date(2026, 1, 31, 12, 0, 0, 250e6, time.UTC)),
		"2026-01-31T12:00:00.0000000001Z": seb.AtTime(time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)), // more digits than nanoseconds
		"1970-01-01T00:00:00Z":            seb.AtTime(time.UnixMilli(0)),
		"9999-12-31T23:59:59.999Z":        seb.AtTime(time.Date(9999, 12, 31, 23, 59, 59, 999e6, time.UTC)),
		"latest":                          seb.Latest,
		"41":                              seb.At(41),
		"-10":                             seb.Last(10),
		"2026-01-31T12:00:00.000000001Z":  seb.AtTime(time.Date(2026, 1, 31, 12, 0, 0, 1e6, time.UTC)),
	} {
		got, err := seb.ParsePosition(s)
		if err != nil || got != want {
			t.Errorf("%q is %v, %v; want %v", s, got, err, want)
		}
		if again, err := seb.ParsePosition(got.String()); err != nil || again != got {
			t.Errorf("%v is read as %v, %v", got, again, err)
		}
	}
	for _, s := range []string{"yesterday", "2026-01-31", "2026-01-31T12:00:00", "2026-02-30T12:00:00Z", "1969-12-31T23:59:59Z",
		"9999-12-31T23:59:59.9999Z", "9999-12-31T23:59:59-01:00", "2026-01-31 12:00:00Z"} {
		_, err := seb.ParsePosition(s)
		wantCode(t, err, seb.CodeInvalidRequest)
	}
}
