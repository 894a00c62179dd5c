package fault_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// bent damages every second answer to a Get, each in another way.
func bent(rng *rand.Rand) storetest.Fault {
	var (
		mu sync.Mutex
		n  int
	)
	return func(ctx context.Context, r storetest.Request, next storetest.Next) (storetest.Answer, error) {
		a, err := next(ctx, r)
		mu.Lock()
		defer mu.Unlock()
		if n++; n%2 == 0 || err != nil || len(a.Body) == 0 {
			return a, err
		}
		switch at := rng.IntN(len(a.Body)); rng.IntN(3) {
		case 0:
			a.Body = a.Body[:at]
		case 1:
			a.Body[at] ^= 1 << rng.IntN(8)
		default:
			clear(a.Body[at:])
			a.Body[at] ^= 1 // the bytes may have been zero before
		}
		return a, err
	}
}

func TestBentAnswersAreNeverServed(t *testing.T) {
	seeds := uint64(50)
	if testing.Short() {
		seeds = 5
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			memory, faulty := newFaulty()
			opts := immediate()
			opts.CheckpointCommits = 3
			writer := open(t, memory, opts)
			var want []string
			for i := range 8 {
				size := []int{10, 20_000, 300_000, 5 << 20}[i%4]
				want = append(want, large(fmt.Sprint(i), size))
				mustAppend(t, writer, "t", want[i])
			}
			for _, prefix := range []string{format.LogPrefix, format.DataPrefix, format.CheckpointPrefix} {
				faulty.On(objstore.VerbGet, prefix, bent(rand.New(rand.NewPCG(seed, uint64(len(prefix))))))
			}
			b, err := seb.Open(t.Context(), faulty, opts)
			if err != nil {
				// So much damage in a row may look like a damaged bucket, but never like another
				// log.
				if seb.CodeOf(err) != seb.CodeBrokerStopped && seb.CodeOf(err) != seb.CodeStoreUnavailable {
					t.Errorf("seed %d: %v", seed, err)
				}
				return
			}
			defer b.Close()
			for at := 0; at < len(want); {
				f, err := b.Fetch(t.Context(), "t", 0, seb.At(seb.Offset(at)), seb.FetchOptions{Limit: 3, MaxBytes: 20 << 20})
				if err != nil {
					if seb.CodeOf(err) != seb.CodeDataLost {
						t.Fatalf("seed %d: offset %d: %v", seed, at, err)
					}
					continue // the damage came three times in a row; the next read succeeds
				}
				for _, r := range f.Records {
					if string(r.Value) != want[at] {
						t.Fatalf("seed %d: offset %d is not what was appended", seed, at)
					}
					at++
				}
			}
		})
	}
}

func TestTruncatedAndFlippedGetsAreRetried(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a while, with one goroutine at a time")
	}
	faults := map[string]storetest.Fault{
		"empty":      storetest.Truncate(0),
		"short":      storetest.Truncate(20),
		"one short":  storetest.Truncate(300_000),
		"first byte": storetest.FlipByte(0),
		"head":       storetest.FlipByte(70),
		"last byte":  storetest.FlipByte(-1),
		"refused":    storetest.Fail,
	}
	for _, prefix := range []string{format.LogPrefix, format.DataPrefix, format.CheckpointPrefix, format.ClusterKey} {
		for name, fault := range faults {
			if prefix == format.ClusterKey && (name == "one short" || name == "head") {
				continue
			}
			t.Run(prefix+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					memory, faulty := newFaulty()
					opts := immediate()
					opts.CheckpointCommits = 4
					writer := open(t, memory, opts)
					want := []string{large("a", 400_000), large("b", 5<<20), "c", "d"}
					for _, v := range want {
						mustAppend(t, writer, "t", v)
						synctest.Wait()
					}
					faulty.On(objstore.VerbGet, prefix, storetest.Times(2, fault))
					b, err := seb.Open(t.Context(), faulty, opts)
					if err != nil {
						t.Fatal(err)
					}
					defer b.Close()
					wantValues(t, b, "t", want...)
				})
			})
		}
	}
}

// A record is not lost if the network damages and refuses answers by turns.
func TestReadThatIsNotAlwaysBentIsNotCalledLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := newFaulty()
		mustAppend(t, open(t, memory, immediate()), "t", large("v", 400_000))
		b := open(t, faulty, immediate())
		faulty.On(objstore.VerbGet, format.LogPrefix, everyOther(storetest.Fail))
		faulty.On(objstore.VerbGet, format.LogPrefix, storetest.FlipByte(-1))
		for range 2 { // the last try is refused, or its answer is damaged
			_, err := b.Fetch(t.Context(), "t", 0, seb.Earliest, seb.FetchOptions{})
			wantCode(t, err, seb.CodeStoreUnavailable)
		}
	})
}

// Reading a thousand small commits must not take a thousand round trips.
func TestSmallCommitsAreReadSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		writer := open(t, memory, immediate())
		const commits = 320
		for _, v := range numbered("v", commits) {
			mustAppend(t, writer, "t", v)
		}
		b := open(t, storetest.Slow(memory, 50*time.Millisecond), immediate())
		begun := time.Now()
		wantValues(t, b, "t", numbered("v", commits)...)
		if took := time.Since(begun); took > 3*time.Second {
			t.Errorf("%d commits on a store of 50 ms took %v to read", commits, took)
		}
	})
}

func TestOneMissingDataObjectFailsOnlyItsOwnReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		writer := open(t, memory, immediate())
		mustCreateTopic(t, writer, "t", 2)
		for _, p := range []int32{0, 1} {
			for _, v := range []string{"small", large("lost", 5<<20), "behind"} {
				if _, err := writer.Append(t.Context(), "t", values(v), seb.ToPartition(p)); err != nil {
					t.Fatal(err)
				}
			}
		}
		data := keys(t, memory, format.DataPrefix)
		if len(data) != 2 {
			t.Fatalf("%d data objects", len(data))
		}
		remove(t, memory, data[0]) // the data object of partition 0
		b := open(t, memory, immediate())
		fetch := func(p int32, at seb.Offset) (seb.Fetched, error) {
			return b.Fetch(t.Context(), "t", p, seb.At(at), seb.FetchOptions{MaxBytes: 20 << 20})
		}
		if f, err := fetch(0, 0); err != nil || len(f.Records) != 1 || f.Next != 1 {
			t.Errorf("before the hole: %d records, %v", len(f.Records), err)
		}
		_, err := fetch(0, 1)
		wantCode(t, err, seb.CodeDataLost)
		wantText(t, err, data[0], "offsets 1 to 1", "restore")
		if f, err := fetch(0, 2); err != nil || string(f.Records[0].Value) != "behind" {
			t.Errorf("after the hole: %v", err)
		}
		if got := readAll(t, b, "t", 1); len(got) != 3 {
			t.Errorf("the other partition has %d records", len(got))
		}
		a, err := b.Append(t.Context(), "t", values("goes on"), seb.ToPartition(0))
		if err != nil || a.Ranges[0].Offset != 3 {
			t.Errorf("append: %+v, %v", a, err)
		}
		if n := metricOf(t, b, "seb_data_lost_reads_total"); n != 2 { // the first fetch counts too
			t.Errorf("%v lost reads were counted", n)
		}
	})
}

// metricOf returns the value of a gauge or counter without labels.
func metricOf(t *testing.T, b *seb.Broker, name string) float64 {
	t.Helper()
	for _, f := range b.Metrics() {
		if f.Name == name {
			return f.Series[0].Value
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// cacheFiles returns the files of a cache directory that hold records.
func cacheFiles(t *testing.T, dir string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil && info.Size() > 0 {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// cached opens a broker with little memory and a cache directory, and reads everything, so that the
// directory holds records that are not in memory.
func cached(t *testing.T, store objstore.Store, dir string) *seb.Broker {
	t.Helper()
	opts := immediate()
	opts.CacheDir, opts.Memory, opts.CacheBytes = dir, 8<<20, 64<<20
	return open(t, store, opts)
}

func TestDamagedCacheFilesAreDetectedAndFetchedAgain(t *testing.T) {
	damages := map[string]func(t *testing.T, path string){
		"zeroed": func(t *testing.T, path string) {
			info, err := os.Stat(path)
			if err == nil {
				err = os.WriteFile(path, make([]byte, info.Size()), 0o600)
			}
			if err != nil {
				t.Error(err)
			}
		},
		"truncated": func(t *testing.T, path string) {
			if err := os.Truncate(path, 1000); err != nil {
				t.Error(err)
			}
		},
		"bit-flipped": func(t *testing.T, path string) {
			b, err := os.ReadFile(path)
			for i := 99; i < len(b); i += 1000 {
				b[i] ^= 4
			}
			if err == nil {
				err = os.WriteFile(path, b, 0o600)
			}
			if err != nil {
				t.Error(err)
			}
		},
		"removed": func(t *testing.T, path string) {
			if err := os.Remove(path); err != nil {
				t.Error(err)
			}
		},
	}
	for name, damage := range damages {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, restarted %v", name, restart), func(t *testing.T) {
				if testing.Short() && !restart {
					t.Skip("it takes a while")
				}
				memory, faulty := newFaulty()
				writer := open(t, memory, immediate())
				want := numbered("small", 5)
				for i := range 30 {
					want = append(want, large(fmt.Sprint(i), 1<<20))
				}
				for _, v := range want {
					mustAppend(t, writer, "t", v)
				}
				dir := t.TempDir()
				b := cached(t, faulty, dir)
				readUntilCached(t, b, faulty, want)
				if restart {
					if err := b.Close(); err != nil {
						t.Fatal(err)
					}
				}
				for _, path := range cacheFiles(t, dir) {
					damage(t, path)
				}
				if restart {
					b = cached(t, faulty, dir)
				}
				gets := faulty.Count(objstore.VerbGet, "")
				wantValues(t, b, "t", want...)
				if n := faulty.Count(objstore.VerbGet, "") - gets; n == 0 {
					t.Error("nothing was fetched again: was anything damaged?")
				}
			})
		}
	}
}

// readUntilCached reads everything until the broker sends no Get to the store. Records that recovery
// has read go to the disk when they are read again. Records that are read while another reader begins
// a cache file go there one read later.
func readUntilCached(t *testing.T, b *seb.Broker, faulty *storetest.Faulty, want []string) {
	t.Helper()
	for range 2 {
		wantValues(t, b, "t", want...)
	}
	for range 10 {
		gets := faulty.Count(objstore.VerbGet, "")
		wantValues(t, b, "t", want...)
		if faulty.Count(objstore.VerbGet, "") == gets {
			return
		}
	}
	t.Fatal("what was read ten times is still not cached")
}

func TestCacheOfAnotherOrOlderBucketIsNeverServed(t *testing.T) {
	dir := t.TempDir()
	fill := func(store objstore.Store, name string) []string {
		b := open(t, store, immediate())
		var want []string
		for i := range 20 {
			want = append(want, large(fmt.Sprintf("%s%02d", name, i), 1<<20))
			mustAppend(t, b, "t", want[i])
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		return want
	}
	// The buckets that one cache directory is used for: a bucket, the bucket of another cluster, and
	// the first bucket rolled back to its beginning and written again. All slots, positions and sizes
	// are the same in all three.
	bucket, other := objstore.NewMemory(), objstore.NewMemory()
	early := copyOf(t, bucket, func() { mustAppend(t, open(t, bucket, immediate()), "x", "x") })
	logs := []struct {
		name  string
		store objstore.Store
	}{{"a", bucket}, {"b", other}, {"c", early}}
	for _, l := range logs {
		want := fill(l.store, l.name)
		b := cached(t, l.store, dir)
		wantValues(t, b, "t", want...)
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if len(cacheFiles(t, dir)) == 0 {
		t.Error("nothing was cached")
	}
}

// copyOf returns a copy of a bucket, made after prepare was called.
func copyOf(t *testing.T, store objstore.Store, prepare func()) objstore.Store {
	t.Helper()
	prepare()
	c := objstore.NewMemory()
	for _, k := range keys(t, store, "") {
		replace(t, c, k, body(t, store, k))
	}
	return c
}

func TestReadersOfOneBatchShareOneGet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := newFaulty()
		mustAppend(t, open(t, memory, immediate()), "t", large("v", 5<<20))
		b := open(t, faulty, immediate())
		faulty.On(objstore.VerbGet, format.DataPrefix, storetest.Delay(time.Second))
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if i == 0 { // the first reader gives up early, which must not disturb the others
					time.AfterFunc(500*time.Millisecond, cancel)
				} else {
					time.Sleep(100 * time.Millisecond)
				}
				f, err := b.Fetch(ctx, "t", 0, seb.Earliest, seb.FetchOptions{})
				switch {
				case i == 0:
					if seb.CodeOf(err) != seb.CodeCanceled {
						t.Errorf("the first reader got %v", err)
					}
				case err != nil || !bytes.HasPrefix(f.Records[0].Value, []byte("v")):
					t.Errorf("reader %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		if n := faulty.Count(objstore.VerbGet, format.DataPrefix); n != 1 {
			t.Errorf("%d Gets, want 1", n)
		}
	})
}

// Bytes that are no batch at all are as lost as a damaged batch: a later read won't help.
func TestGarbageInThePlaceOfABatchIsDataLost(t *testing.T) {
	for _, d := range storetest.Damages() {
		t.Run(d.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := storetest.NewBucket()
				mustAppend(t, open(t, store, immediate()), "t", large("in a data object", 5<<20))
				if err := openOnly(t, store, immediate()).Close(); err != nil { // leaves a checkpoint
					t.Fatal(err)
				}
				key := store.Keys(format.DataPrefix)[0]
				store.Put(key, append(store.Body(key)[:format.DataPayloadStart:format.DataPayloadStart],
					d.Bend(newRand(1), store.Body(key)[format.DataPayloadStart:])...))
				_, err := open(t, store, immediate()).Fetch(t.Context(), "t", 0, seb.Earliest, seb.FetchOptions{})
				wantCode(t, err, seb.CodeDataLost)
				wantText(t, err, key, "restore")
			})
		})
	}
}
