package record

import (
	"slices"
	"testing"
)

const benchCount, benchSize = 1024, 1024

func benchRecord() Record {
	return Record{Value: make([]byte, benchSize), Timestamp: 1700000000000}
}

func reportRecords(b *testing.B) {
	b.ReportMetric(float64(b.N)*benchCount/b.Elapsed().Seconds(), "records/s")
}

func BenchmarkBuild(b *testing.B) {
	r := benchRecord()
	b.SetBytes(benchCount * benchSize)
	b.ReportAllocs()
	var builder Builder
	for b.Loop() {
		builder.Grow(benchCount * SizeOf(&r))
		for range benchCount {
			builder.Append(&r)
		}
		builder.Finish()
	}
	reportRecords(b)
}

func benchBatch(b *testing.B, c Codec) []byte {
	return build(b, c, slices.Repeat([]Record{benchRecord()}, benchCount))
}

func BenchmarkCheck(b *testing.B) {
	p := benchBatch(b, None)
	b.SetBytes(int64(len(p)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Check(p, Limits{RecordBytes: 1 << 20}); err != nil {
			b.Fatal(err)
		}
	}
	reportRecords(b)
}

func BenchmarkRecords(b *testing.B) {
	p := benchBatch(b, None)
	x, err := Parse(p)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, err := range x.Records(p, 0, Limits{}) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	reportRecords(b)
}

func BenchmarkMurmur2(b *testing.B) {
	key := []byte("order-8842-customer-17")
	for b.Loop() {
		Murmur2(key)
	}
}
