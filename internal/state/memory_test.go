package state

import (
	"math"
	"runtime"
	"testing"

	"github.com/simple-event-broker/seb/internal/format"
)

// oneEach returns a state after n commits of one batch each.
func oneEach(tb testing.TB, n int) *State {
	s := New()
	mustApply(tb, s, &format.Commit{Seq: 1, Entries: []format.Entry{&format.TopicCreated{ID: 1, Partitions: 1, Name: "a"}}})
	applyOneEach(tb, s, n)
	return s
}

func applyOneEach(tb testing.TB, s *State, n int) {
	x := &format.Batch{Topic: 1, Count: 10, Size: 1000}
	c := &format.Commit{Entries: []format.Entry{x}, PayloadSize: 1000}
	p := &s.TopicByID(1).Partitions[0]
	for range n {
		c.Seq, x.Base, x.CRC = s.Seq()+1, p.End, uint32(s.Seq()*2654435761)
		x.MaxTime, c.Time = int64(1_790_000_000_000+p.End), int64((1_790_000_000_000+p.End)*1000)
		c.Nonce[0], c.Nonce[5] = byte(c.Seq), byte(c.Seq>>8)
		mustApply(tb, s, c)
	}
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestBatchTakesAtMost64Bytes(t *testing.T) {
	const n = 100_000
	for name, make := range map[string]func() *State{
		"applied": func() *State { return oneEach(t, n) },
		"decoded": func() *State { return mustDecode(t, n+1, oneEach(t, n).View().Encode()) },
	} {
		t.Run(name, func(t *testing.T) {
			before := heapInUse()
			s := make()
			measured := float64(heapInUse()-before) / n
			told := float64(s.Memory()) / n
			t.Logf("a batch takes %.1f bytes of heap; Memory tells %.1f", measured, told)
			if told > 64 || measured > 64 {
				t.Fatal("more than 64 bytes")
			}
			if math.Abs(told-measured) > 0.1*measured {
				t.Fatal("Memory is off by more than a tenth")
			}
			runtime.KeepAlive(s)
		})
	}
}

func TestAttemptTakesTheMemoryThatIsCounted(t *testing.T) {
	const n = 150_000
	before := heapInUse()
	s := parkedState(t, n)
	measured := float64(heapInUse()-before) / n
	told := float64(s.Memory()) / n
	t.Logf("an attempt takes %.1f bytes of heap; Memory tells %.1f", measured, told)
	if told > 130 || measured > 1.2*told || measured < told/2.5 {
		t.Fatal("Memory is far off")
	}
	runtime.KeepAlive(s)
}

// parkedState returns a state with n dead letters, at the odd offsets of a partition.
func parkedState(tb testing.TB, n int) *State {
	s := New()
	mustApply(tb, s, &format.Commit{Seq: 1, PayloadSize: 61, Entries: []format.Entry{
		&format.TopicCreated{ID: 1, Partitions: 1, Name: "a"}, &format.Batch{Topic: 1, Count: uint32(2*n + 10), Size: 61},
		queueSet(1, 1, "q"), owned(1, 1, format.Offset(2*n+10)),
	}})
	c := &format.Commit{Seq: 2}
	for i := range n {
		x := back(1, 0, format.Offset(2*i+1), 1, true)
		x.Reason = "its lease ran out" // all dead letters share one string
		c.Entries = append(c.Entries, x)
	}
	mustApply(tb, s, c)
	return s
}

// BenchmarkWork marks a record as done, and redrives a dead letter and makes it one again, in a
// state with many dead letters.
func BenchmarkWork(b *testing.B) {
	for name, n := range map[string]int{"1e2": 1e2, "1e5": 1e5} {
		b.Run(name, func(b *testing.B) {
			s := parkedState(b, n)
			c := &format.Commit{Entries: []format.Entry{nil, redriven(1, 0, 1), nil, nil}}
			number := format.Offset(1)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if i%n == 0 {
					b.StopTimer()
					s, number = parkedState(b, n), 1
					b.StartTimer()
				}
				number++
				c.Entries[0], c.Entries[2], c.Entries[3] = runs(1, 0, format.Offset(2*i%(2*n)), 1, 1), tries(1, 1, 0, 1, number), back(1, 0, 1, uint32(number), true)
				c.Seq = s.Seq() + 1
				if err := s.Apply(c); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkViewOfDeadLetters(b *testing.B) {
	s := parkedState(b, 1e5)
	b.ReportAllocs()
	for b.Loop() {
		s.View()
	}
}

func BenchmarkApply(b *testing.B) {
	s := oneEach(b, 0)
	b.ReportAllocs()
	b.ResetTimer()
	applyOneEach(b, s, b.N)
}

func BenchmarkViewAndEncode(b *testing.B) {
	s := oneEach(b, 100_000)
	b.ReportAllocs()
	for b.Loop() {
		b.SetBytes(int64(len(s.View().Encode())))
	}
}

func BenchmarkDecode(b *testing.B) {
	body := oneEach(b, 100_000).View().Encode()
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, err := Decode(100_001, body); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLocate(b *testing.B) {
	s := oneEach(b, 100_000)
	topic := s.Topic("a")
	end := topic.Partitions[0].End
	var dst []Location
	var offset format.Offset
	b.ReportAllocs()
	for b.Loop() {
		offset = (offset + 7919) % end
		if dst = s.Locate(dst[:0], topic, 0, offset, 1<<20, 16); len(dst) == 0 {
			b.Fatal("nothing found")
		}
	}
}
