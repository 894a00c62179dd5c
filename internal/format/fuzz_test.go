package format

import (
	"bytes"
	"math"
	"testing"
)

// The fuzz targets change bytes and then correct the checksums, so that decoders look further. A
// decoded object that is encoded again must decode to the same.

func FuzzDecodeCommit(f *testing.F) {
	f.Add(golden(f, "commit.golden"))
	f.Add(golden(f, "commit.keys.golden"))
	f.Add(golden(f, "commit.consumers.golden"))
	f.Add(golden(f, "commit.queues.golden"))
	f.Add(golden(f, "commit.push.golden"))
	f.Add(golden(f, "commit.sessions.golden"))
	f.Add(golden(f, "commit.marks.golden"))
	f.Add(golden(f, "commit.segments.golden"))
	f.Add(golden(f, "commit.kept.golden"))
	f.Add(golden(f, "commit.spent.golden"))
	f.Add(golden(f, "commit.page.golden"))
	f.Add(EncodeCommit(&Commit{Seq: 1, Entries: []Entry{&UnknownEntry{Kind: 999}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		fuzzDecode(t, b, KindCommit, func(b []byte) (*Commit, []byte, error) {
			c, err := DecodeCommit(b)
			if err != nil {
				return nil, nil, err
			}
			for _, it := range c.Entries {
				if x, ok := it.(*Batch); ok && int64(x.Pos)+int64(x.Size) > 1<<32-1 {
					t.Fatalf("batch %+v", x)
				}
			}
			if c.Size() > math.MaxUint32 {
				t.Fatalf("a commit of %d bytes", c.Size())
			}
			if err := CheckCommitStart(b[:PrologueSize+commitFixedSize], c.Size()); err != nil {
				t.Fatalf("a commit that decodes has a bad start: %v", err)
			}
			again := *c
			encoded := EncodeCommit(&again)
			c.Hash = again.Hash // differs if a known entry had another critical flag
			return c, encoded, nil
		})
	})
}

func FuzzDecodeData(f *testing.F) {
	f.Add(golden(f, "data.golden"))
	f.Fuzz(func(t *testing.T, b []byte) {
		fuzzDecode(t, b, KindData, func(b []byte) (*DataHead, []byte, error) {
			h, err := DecodeDataHead(b)
			if err != nil {
				return nil, nil, err
			}
			return h, EncodeDataHead(h), nil
		})
	})
}

func FuzzDecodeCheckpoint(f *testing.F) {
	f.Add(golden(f, "checkpoint.golden"))
	f.Fuzz(func(t *testing.T, b []byte) {
		fuzzDecode(t, b, KindCheckpoint, func(b []byte) (*Checkpoint, []byte, error) {
			c, err := DecodeCheckpoint(b)
			if err != nil {
				return nil, nil, err
			}
			return c, append(EncodeCheckpoint(c), c.Body...), nil
		})
	})
}

// fuzzDecode decodes b as it is, and then b with the prologue of the kind. decode returns what
// it decoded, and the encoding of that.
func fuzzDecode[T any](t *testing.T, b []byte, kind Kind, decode func([]byte) (*T, []byte, error)) {
	for range 2 {
		got, encoded, err := decode(b)
		switch {
		case err == nil:
			again, _, err := decode(encoded)
			if err != nil {
				t.Fatalf("what was accepted is refused when it is written again: %v", err)
			}
			requireEqual(t, again, got)
		case !known(err):
			t.Fatalf("the error says neither damaged nor version nor foreign: %v", err)
		}
		b = bytes.Clone(b)
		if len(b) >= PrologueSize {
			copy(b, "seb!\x02\x00")
			b[18], b[19] = byte(kind), 0
			head := len(b) - PrologueSize
			if kind == KindCheckpoint {
				head = min(head, checkpointHeadSize)
			}
			le.PutUint32(b[20:], uint32(head))
		}
		seal(b)
	}
}

func FuzzDecodeCluster(f *testing.F) {
	file, err := EncodeCluster(goldenClusterFile())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(file)
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := DecodeCluster(b)
		switch {
		case err == nil && (c.Margin < 0 || c.DeleteDelay/4 < c.Margin || c.DeleteDelay <= 0 || c.ID == ClusterID{}):
			t.Fatalf("accepted %+v", c)
		case err != nil && !known(err):
			t.Fatalf("the error says neither damaged nor version: %v", err)
		case err == nil && c.Checksum != "":
			if again, err := EncodeCluster(c); err != nil || !bytes.Equal(again, b) {
				t.Fatalf("%q is written again as %q, %v", b, again, err)
			}
		}
	})
}
