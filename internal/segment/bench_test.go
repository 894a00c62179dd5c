package segment

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/record"
	"github.com/simple-event-broker/seb/internal/test/cputime"
)

// BenchmarkBuild builds and checks segments of JSON records of about 1 KiB, which arrived in commits of 10 records, and
// prints how many bytes of batches went in for each that came out.
func BenchmarkBuild(b *testing.B) {
	const commits = 1000
	r := rand.New(rand.NewPCG(1, 2))
	var inputs []Input
	var in int64
	for i := range commits {
		var batch record.Builder
		for range 10 {
			value := fmt.Appendf(nil, `{"customer":"c-%d","order":%d,"lines":[`, r.IntN(1000), r.IntN(1_000_000))
			for len(value) < 1000 {
				value = fmt.Appendf(value, `{"sku":"%08x","count":%d,"price":%d.%02d,"note":"as ordered"},`, r.Uint32(), r.IntN(20), r.IntN(500), r.IntN(100))
			}
			batch.Append(&record.Record{Value: append(value[:len(value)-1], "]}"...), Timestamp: int64(i)})
		}
		base := format.Offset(10 * i)
		inputs = append(inputs, Input{Topic: 1, Base: base, MaxTime: int64(i), Raw: batch.Finish(), Commits: []format.CommitPart{{Base: base, Seq: format.Seq(i + 1)}}})
		in += int64(len(inputs[i].Raw))
	}
	for _, codec := range []record.Codec{record.Zstd, record.None} {
		b.Run(codec.String(), func(b *testing.B) {
			b.SetBytes(in)
			var out, loops int
			begun := cputime.Used(b)
			for b.Loop() {
				loops++
				s := NewBuilder(Options{Codec: codec})
				for i := range inputs {
					if err := s.Add(inputs[i]); err != nil {
						b.Fatal(err)
					}
				}
				built, err := s.Finish(testCluster, format.DataRef{Seq: 1, ID: 1}, 0)
				if err != nil {
					b.Fatal(err)
				}
				if _, _, err := Check(built.Parts...); err != nil {
					b.Fatal(err)
				}
				out = int(built.Ref.Size)
			}
			b.ReportMetric(float64(in)*float64(loops)/1e6/(cputime.Used(b)-begun).Seconds(), "MB/cpu-s")
			b.ReportMetric(float64(out)/float64(in), "stored/in")
		})
	}
}
