package main

import "testing"

func TestSizeReadsWhatPeopleWrite(t *testing.T) {
	for text, want := range map[string]size{
		"0": 0, "4096": 4096, "4096B": 4096, "64KiB": 64 << 10, "4MiB": 4 << 20, "1GiB": 1 << 30, "2TiB": 2 << 40,
		"128MB": 128e6, "5kB": 5e3, "5KB": 5e3, "1 GB": 1e9, "9223372036854775807": 1<<63 - 1,
	} {
		var s size
		if err := s.UnmarshalText([]byte(text)); err != nil || s != want {
			t.Errorf("%q reads as %d, %v; want %d", text, s, err, want)
		}
	}
	for _, text := range []string{"", "MiB", "-1", "1.5MiB", "4mib", "9223372036854775808", "9000000TiB", "1e6", "four"} {
		var s size
		if err := s.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q reads as %d", text, s)
		}
	}
}

func TestSizeWritesShortly(t *testing.T) {
	for s, want := range map[size]string{
		0: "0 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB", 4 << 20: "4 MiB", 5 << 30: "5 GiB", 1<<40 + 1<<39: "1.5 TiB",
	} {
		if got := s.String(); got != want {
			t.Errorf("%d writes as %q, not %q", int64(s), got, want)
		}
	}
}
