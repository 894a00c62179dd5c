package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// size is a number of bytes. As a flag it is written as 4MiB, 128MB or 4096.
type size int64

var sizeUnits = []struct {
	suffix string
	bytes  int64
}{
	// Longest first: 4MiB ends in B too.
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12},
	{"B", 1}, {"", 1},
}

// UnmarshalText parses a size such as 4MiB.
func (s *size) UnmarshalText(text []byte) error {
	for _, unit := range sizeUnits {
		digits, ok := strings.CutSuffix(string(text), unit.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || n < 0 || n > math.MaxInt64/unit.bytes {
			break
		}
		*s = size(n * unit.bytes)
		return nil
	}
	return fmt.Errorf("invalid size %q: write 4MiB, 128MB, or a number of bytes", text)
}

// String writes s in the largest binary unit that is not larger than s, with one decimal unless s is a
// multiple of the unit.
func (s size) String() string {
	for _, unit := range []struct {
		name  string
		bytes size
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if s < unit.bytes {
			continue
		}
		if s%unit.bytes == 0 {
			return fmt.Sprintf("%d %s", s/unit.bytes, unit.name)
		}
		return fmt.Sprintf("%.1f %s", float64(s)/float64(unit.bytes), unit.name)
	}
	return fmt.Sprintf("%d B", int64(s))
}
