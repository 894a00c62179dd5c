package cache

import (
	"bytes"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/simple-event-broker/seb/internal/record"
	"pgregory.net/rapid"
)

var cluster = [16]byte{1, 2, 3}

// batch returns the n-th test batch, of about size bytes, and its Range. Its capacity is its
// length, so that tests can count bytes.
func batch(n, size int) (Range, []byte) {
	value := make([]byte, max(0, size-record.HeaderSize-12))
	_, _ = rand.NewChaCha8([32]byte{byte(n), byte(n >> 8)}).Read(value) // never fails
	var b record.Builder
	b.Append(&record.Record{Value: value, Timestamp: int64(n)})
	p := slices.Clip(b.Finish())
	p = append(make([]byte, 0, len(p)), p...)
	return Range{
		Object: Object{Kind: 1, Seq: uint64(n), Tag: uint64(n) << 40},
		Pos:    uint32(n * 7), Size: uint32(len(p)), CRC: record.CRC(p),
	}, p
}

// open returns a cache that is closed when the test ends.
func open(t testing.TB, opts Options) *Cache {
	t.Helper()
	opts.Cluster = cluster
	c, err := Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// logBuffer keeps log lines for tests.
type logBuffer struct {
	mu  sync.Mutex
	buf strings.Builder
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Split(strings.TrimSuffix(l.buf.String(), "\n"), "\n")
}

func (l *logBuffer) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func TestMemoryHoldsWhatWasAdded(t *testing.T) {
	c := open(t, Options{MemoryMax: 1 << 20})
	r, b := batch(1, 1000)
	if c.Get(r) != nil {
		t.Fatal("found before it was added")
	}
	c.Add(r, b)
	if !bytes.Equal(c.Get(r), b) {
		t.Fatal("not found after it was added")
	}
	for name, other := range map[string]func(*Range){
		"kind": func(r *Range) { r.Object.Kind++ },
		"seq":  func(r *Range) { r.Object.Seq++ },
		"tag":  func(r *Range) { r.Object.Tag++ },
		"pos":  func(r *Range) { r.Pos++ },
		"size": func(r *Range) { r.Size++ },
		"crc":  func(r *Range) { r.CRC++ },
	} {
		x := r
		other(&x)
		if c.Get(x) != nil {
			t.Errorf("found under another %s", name)
		}
	}
	want := Stats{MemoryBytes: int64(cap(b)) + entryOverhead, MemoryMax: 1 << 20, MemoryEntries: 1, MemoryHits: 1, Misses: 7}
	if got := c.Stats(); got != want {
		t.Fatalf("stats %+v, want %+v", got, want)
	}
}

func TestAddIgnoresWhatItsNameDoesNotMatch(t *testing.T) {
	c := open(t, Options{MemoryMax: 1 << 20, Dir: t.TempDir(), DiskBytes: 1 << 20})
	r, b := batch(1, 1000)
	otherCRC, otherSize := r, r
	otherCRC.CRC++
	otherSize.Size--
	for _, x := range []Range{otherCRC, otherSize, {Size: 3}} {
		c.Add(x, b)
		c.AddFetched(x, b)
		c.AddFetched(x, b[:3])
		if c.Get(x) != nil {
			t.Errorf("%+v is found", x)
		}
	}
}

func TestMemoryEvictsTheLeastRecentlyUsed(t *testing.T) {
	r1, b1 := batch(1, 1000)
	r2, b2 := batch(2, 1000)
	r3, b3 := batch(3, 1000)
	cost := int64(cap(b1)) + entryOverhead
	c := open(t, Options{MemoryMax: 2 * cost})
	c.Add(r1, b1)
	c.Add(r2, b2)
	c.Get(r1)
	c.Add(r3, b3)
	if c.Get(r1) == nil || c.Get(r2) != nil || c.Get(r3) == nil {
		t.Fatal("not the least recently used one went")
	}
	if freed := c.Shrink(1); freed != cost || c.Get(r1) != nil || c.Get(r3) == nil {
		t.Fatalf("freed %d", freed)
	}
	if freed := c.Shrink(1 << 40); freed != cost || c.Shrink(1) != 0 {
		t.Fatalf("freed %d", freed)
	}
	c.Add(r1, b1)
	c.SetMemoryMax(cost - 1)
	if got := c.Stats(); got.MemoryBytes != 0 || got.MemoryEntries != 0 {
		t.Fatalf("%+v", got)
	}
	if c.Add(r1, b1); c.Get(r1) != nil {
		t.Fatal("an entry over the bound was kept")
	}
}

func TestMemoryStaysWithinItsBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const most = 20_000
		c := &Cache{}
		c.memory.init(most)
		sizes := rapid.SliceOfN(rapid.IntRange(100, 8000), 1, 60).Draw(t, "sizes")
		for i, size := range sizes {
			r, b := batch(i, size)
			c.Add(r, b)
			if got := c.Get(r); cap(b)+entryOverhead <= most && !bytes.Equal(got, b) {
				t.Fatal("the newest is gone")
			}
			var sum int64
			for e := c.memory.order.Front(); e != nil; e = e.Next() {
				sum += e.Value.(*entry).cost()
			}
			s := c.Stats()
			if s.MemoryBytes > most || s.MemoryBytes != sum || s.MemoryEntries != c.memory.order.Len() {
				t.Fatalf("%d bytes counted, %d there, %d entries", s.MemoryBytes, sum, s.MemoryEntries)
			}
		}
	})
}

func TestMemoryDoesNotPinALargeAllocation(t *testing.T) {
	c := open(t, Options{MemoryMax: 1 << 20})
	r, b := batch(1, 1000)
	large := append(make([]byte, 0, 1<<22), b...)
	c.Add(r, large)
	if got := c.Get(r); cap(got) > 2*len(got) || !bytes.Equal(got, b) {
		t.Fatalf("%d bytes kept for %d", cap(got), len(got))
	}
}

func TestOpenRefusesNegativeBounds(t *testing.T) {
	for _, opts := range []Options{{MemoryMax: -1}, {Dir: t.TempDir(), DiskBytes: -1}} {
		if _, err := Open(opts); err == nil {
			t.Errorf("%+v was accepted", opts)
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	c := open(t, Options{MemoryMax: 64 << 10, Dir: t.TempDir(), DiskBytes: 256 << 10})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 0))
			for range 300 {
				r, b := batch(rng.IntN(100), 4000)
				if got := c.Get(r); got != nil && !bytes.Equal(got, b) {
					t.Error("wrong bytes")
				}
				switch rng.IntN(3) {
				case 0:
					c.Add(r, b)
				case 1:
					c.AddFetched(r, b)
				default:
					c.Shrink(10_000)
				}
			}
		})
	}
	wg.Wait()
	if s := c.Stats(); s.MemoryBytes > 64<<10 || s.DiskBytes > 256<<10 || s.DiskCorrupt+s.DiskErrors > 0 || s.DiskHits == 0 {
		t.Fatalf("%+v", s)
	}
}

func BenchmarkGetMemory(b *testing.B) {
	c := open(b, Options{MemoryMax: 64 << 20})
	rs := make([]Range, 10_000)
	for i := range rs {
		r, p := batch(i, 1000)
		rs[i] = r
		c.Add(r, p)
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			if c.Get(rs[i%len(rs)]) == nil {
				b.Error("missed")
			}
		}
	})
}

func BenchmarkAddMemory(b *testing.B) {
	c := open(b, Options{MemoryMax: 8 << 20})
	_, p := batch(1, 1000)
	r := Range{Size: uint32(len(p)), CRC: record.CRC(p)}
	b.ReportAllocs()
	for b.Loop() {
		r.Object.Seq++
		c.Add(r, p)
	}
}

func BenchmarkGetDisk(b *testing.B) {
	c := open(b, Options{Dir: b.TempDir(), DiskBytes: 64 << 20})
	r, p := batch(1, 1<<20)
	c.AddFetched(r, p)
	b.SetBytes(int64(len(p)))
	b.ReportAllocs()
	for b.Loop() {
		if c.Get(r) == nil {
			b.Fatal("missed")
		}
	}
}

func BenchmarkAddDisk(b *testing.B) {
	c := open(b, Options{Dir: b.TempDir(), DiskBytes: 256 << 20})
	r, p := batch(1, 1<<20)
	b.SetBytes(int64(len(p)))
	b.ReportAllocs()
	for b.Loop() {
		r.Object.Seq++
		c.AddFetched(r, p)
	}
}

func BenchmarkOpenDisk(b *testing.B) {
	dir := b.TempDir()
	c := open(b, Options{Dir: dir, DiskBytes: 64 << 20})
	r, p := batch(1, 4<<10)
	for range 14_000 {
		r.Object.Seq++
		c.AddFetched(r, p)
	}
	closeCache(b, c)
	for b.Loop() {
		c := open(b, Options{Dir: dir, DiskBytes: 64 << 20})
		b.ReportMetric(float64(c.Stats().DiskEntries), "entries")
		closeCache(b, c)
	}
}
