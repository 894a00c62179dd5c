package trigger

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/driplang"
	"github.com/simple-event-broker/seb/internal/test/cputime"
	"github.com/simple-event-broker/seb/objstore"
)

// benchRecords returns CloudEvents of about 200 bytes: 50 types, 10,000 subjects, 10 µs apart.
func benchRecords(n int) []seb.Record {
	records := make([]seb.Record, n)
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range records {
		records[i] = seb.Record{
			Key:     fmt.Appendf(nil, "customer-%07d", i*7919%10_000),
			Value:   fmt.Appendf(nil, `{"plan":"pro","amount":%d,"currency":"EUR","items":["a-1","b-2"]}`, i%1000),
			Headers: []seb.Header{{Name: ceVersion, Value: []byte("1.0")}, {Name: ceType, Value: fmt.Appendf(nil, "com.example.event%02d", i*31%50)}},
			Offset:  seb.Offset(i), LogTime: begin.Add(time.Duration(i) * 10 * time.Microsecond),
		}
	}
	return records
}

// benchTriggers adds 100 triggers: each type is named by two of them, one of which has a condition.
func benchTriggers(b *testing.B, v *evaluator) {
	for i := range 100 {
		text := fmt.Sprintf("com.example.event%02d THEN com.example.event%02d WITHIN 1h", i%50, (i+1)%50)
		if i < 50 {
			text = fmt.Sprintf("com.example.event%02d [data.amount > 990 && data.plan == \"pro\"]", i)
		}
		if i >= 50 {
			text = fmt.Sprintf("com.example.event%02d [data.amount > 995] THEN NOT com.example.none WITHIN 1h", i%50)
		}
		e, err := driplang.Parse(text)
		if err != nil {
			b.Fatal(err)
		}
		c, err := compile(Definition{From: []string{"events"}, When: When{e}, To: "fired", Repeat: driplang.Every})
		if err != nil {
			b.Fatal(err)
		}
		v.replace(v.version(fmt.Sprintf("trigger-%03d", i), 1, c), false)
	}
}

// BenchmarkEvaluate evaluates events through 100 triggers.
func BenchmarkEvaluate(b *testing.B) {
	records := benchRecords(100_000)
	fired := 0
	v := newEvaluator(func(firing) { fired++ })
	benchTriggers(b, v)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r := records[i%len(records)]
		r.LogTime = r.LogTime.Add(time.Duration(i/len(records)) * time.Second)
		r.Offset = seb.Offset(i)
		v.record("events", 1, &r)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkBareLoop decodes the same events, decides the same conditions in Go, and keeps one map.
func BenchmarkBareLoop(b *testing.B) {
	records := benchRecords(100_000)
	open := map[string]int64{}
	fired := 0
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r := &records[i%len(records)]
		name := ""
		for _, h := range r.Headers {
			if h.Name == ceType {
				name = string(h.Value)
			}
		}
		var data map[string]any
		if err := json.Unmarshal(r.Value, &data); err != nil {
			b.Fatal(err)
		}
		amount, _ := data["amount"].(float64)
		if amount > 990 && data["plan"] == "pro" {
			fired++
		}
		if amount > 995 {
			open[name+string(r.Key)] = r.LogTime.UnixMicro()
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkRun lets a broker run the same triggers over events that its log has, from the first record to the last.
func BenchmarkRun(b *testing.B) {
	broker, err := seb.Open(b.Context(), objstore.NewMemory(), seb.Options{Batching: seb.Immediate()})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = broker.Close() }()
	if _, _, err := broker.CreateTopic(b.Context(), "events", seb.TopicOptions{Partitions: 4}); err != nil {
		b.Fatal(err)
	}
	for range b.N/5000 + 1 {
		if _, err := broker.Append(b.Context(), "events", benchRecords(min(b.N, 5000))); err != nil {
			b.Fatal(err)
		}
	}
	v := newEvaluator(func(firing) {})
	benchTriggers(b, v)
	cut, err := broker.Cut(b.Context(), []string{"events"}, seb.CutOptions{})
	if err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	began := cputime.Used(b)
	if err := replay(b.Context(), broker, v, []string{"events"}, time.Unix(1, 0), deadlineAt(cut.LogTime.UnixMicro())); err != nil {
		b.Fatal(err)
	}
	events := float64(b.N/5000+1) * float64(min(b.N, 5000))
	b.ReportMetric(events/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric((cputime.Used(b)-began).Seconds()/events*1e6, "CPU-s/million")
}

// BenchmarkBurst lets b.N entities reach their deadline at about the same time, and reports how long their firings take.
func BenchmarkBurst(b *testing.B) {
	broker, err := seb.Open(b.Context(), objstore.NewMemory(), seb.Options{Batching: seb.Immediate()})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = broker.Close() }()
	if _, _, err := broker.CreateTopic(b.Context(), "events", seb.TopicOptions{}); err != nil {
		b.Fatal(err)
	}
	t := Open(broker, Options{Logger: slog.New(slog.DiscardHandler)})
	defer t.Close()
	e, err := driplang.Parse("signed_up THEN NOT used WITHIN 10s")
	if err != nil {
		b.Fatal(err)
	}
	if _, err := t.Put(b.Context(), "burst", Definition{From: []string{"events"}, When: When{e}, To: "fired"}, PutOptions{}); err != nil {
		b.Fatal(err)
	}
	records := make([]seb.Record, b.N)
	for i := range records {
		records[i] = seb.Record{Key: fmt.Appendf(nil, "customer-%07d", i), Headers: []seb.Header{{Name: ceVersion, Value: []byte("1.0")}, {Name: ceType, Value: []byte("signed_up")}}}
	}
	for len(records) > 0 {
		n := min(len(records), 5000)
		if _, err := broker.Append(b.Context(), "events", records[:n]); err != nil {
			b.Fatal(err)
		}
		records = records[n:]
	}
	b.ResetTimer()
	due := time.Now().Add(10 * time.Second) // of the last one
	for end, found := seb.Offset(0), (seb.Cut{}); end < seb.Offset(b.N); {
		if found, err = broker.Cut(b.Context(), []string{"fired"}, seb.CutOptions{Later: found.LogTime, Existing: true}); err != nil {
			b.Fatal(err)
		}
		if len(found.Topics) > 0 {
			end = found.Topics[0].Ends[0]
		}
	}
	b.ReportMetric(time.Since(due).Seconds(), "s-after-the-deadline")
}

// BenchmarkMemory reports what a million entities take that wait for a deadline, and that have fired once.
func BenchmarkMemory(b *testing.B) {
	for name, text := range map[string]string{"waiting": "signed_up THEN NOT used WITHIN 7d", "fired": "signed_up"} {
		b.Run(name, func(b *testing.B) {
			e, err := driplang.Parse(text)
			if err != nil {
				b.Fatal(err)
			}
			c, err := compile(Definition{From: []string{"events"}, When: When{e}, To: "fired"})
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				const entities = 1_000_000
				v := newEvaluator(func(firing) {})
				v.replace(v.version("drip", 1, c), false)
				before := heapBytes()
				begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
				for i := range entities {
					v.record("events", 1, &seb.Record{
						Key: fmt.Appendf(nil, "customer-%07d", i), Offset: seb.Offset(i), LogTime: begin.Add(time.Duration(i) * time.Millisecond),
						Headers: []seb.Header{{Name: ceVersion, Value: []byte("1.0")}, {Name: ceType, Value: []byte("signed_up")}},
					})
				}
				b.ReportMetric(float64(heapBytes()-before)/entities, "B/entity")
				runtime.KeepAlive(v)
			}
		})
	}
}

func heapBytes() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
