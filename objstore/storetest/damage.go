package storetest

import (
	"bytes"
	"math/rand/v2"
)

// Damage is a kind of damage that a disk, an incomplete copy or an editor does to an object. Bend
// returns a damaged copy of body, which differs from body. It does not change body, which must not
// be empty.
type Damage struct {
	Name string
	Bend func(rng *rand.Rand, body []byte) []byte
}

// Damages returns every kind of damage.
func Damages() []Damage {
	return []Damage{
		{"emptied", func(*rand.Rand, []byte) []byte { return []byte{} }},
		{"cut off", func(rng *rand.Rand, body []byte) []byte { return bytes.Clone(body[:rng.IntN(len(body))]) }},
		{"grown", func(rng *rand.Rand, body []byte) []byte {
			return append(bytes.Clone(body), noise(rng, 1+rng.IntN(100))...)
		}},
		{"a bit flipped", func(rng *rand.Rand, body []byte) []byte {
			bent := bytes.Clone(body)
			bent[rng.IntN(len(bent))] ^= 1 << rng.IntN(8)
			return bent
		}},
		{"zeros from somewhere on", func(rng *rand.Rand, body []byte) []byte {
			bent := bytes.Clone(body)
			clear(bent[rng.IntN(len(bent)):])
			if bytes.Equal(bent, body) { // these bytes of body were zero already
				bent[len(bent)-1] = 1
			}
			return bent
		}},
		{"garbage", func(rng *rand.Rand, body []byte) []byte {
			bent := noise(rng, len(body))
			bent[0] = ^body[0]
			return bent
		}},
	}
}

func noise(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}
