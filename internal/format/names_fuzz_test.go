package format

import "testing"

// ParseSeqKey accepts a key if and only if it is the key of a slot.
func FuzzParseSeqKey(f *testing.F) {
	for _, key := range []string{
		LogKey(1), LogKey(1<<64 - 1), CheckpointKey(7), "log/99999999999999999999", "log/1", "log/+0000000000000000001",
		"log/00000000000000000001 ", "log/0000000000000000000a", "log/", "", DataRef{Seq: 1, ID: 2}.Key(),
	} {
		f.Add(key, uint64(1))
	}
	f.Fuzz(func(t *testing.T, key string, n uint64) {
		for _, prefix := range []string{LogPrefix, CheckpointPrefix, DataPrefix, ""} {
			if s, ok := ParseSeqKey(prefix, key); ok && seqKey(prefix, s) != key {
				t.Fatalf("%q is taken for slot %d", key, s)
			}
			if s, ok := ParseSeqKey(prefix, seqKey(prefix, Seq(n))); !ok || s != Seq(n) {
				t.Fatalf("the key of %d is read as %d, %v", n, s, ok)
			}
		}
	})
}
