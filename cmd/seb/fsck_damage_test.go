package main

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/fsck"
)

var (
	slot = format.LogKey
	cp   = format.CheckpointKey
)

// damage is a way to damage a bucket, with the findings of fsck. D stands for the key of the bucket's data
// object.
type damage struct {
	name    string
	do      func(t *testing.T, b bucket)
	want    []string // findings with --deep
	shallow []string // findings without --deep; nil means the same
}

func deleting(keys ...string) func(*testing.T, bucket) {
	return func(t *testing.T, b bucket) { b.delete(t, keys...) }
}

func adding(key, body string) func(*testing.T, bucket) {
	return func(_ *testing.T, b bucket) { b[key] = []byte(body) }
}

var nothing = []string{}

var damages = []damage{
	{"none", func(*testing.T, bucket) {}, nothing, nil},

	// Missing slots.
	{"slot in the middle", deleting(slot(5)), []string{"missing " + slot(5)}, nil},
	{"slot without records", deleting(slot(2)), []string{"deleted " + slot(2)}, nil},
	{"slot whose records were deleted", deleting(slot(4)), []string{"deleted " + slot(4)}, nil},
	{"slot that only refers to a data object", deleting(slot(6)), []string{"deleted " + slot(6)}, nil},
	{"first slot", deleting(slot(1)), []string{"deleted " + slot(1)}, nil},
	{"first slots below a checkpoint", deleting(slot(1), slot(2), slot(3), slot(4)),
		[]string{"missing " + slot(3), "deleted " + slot(1) + " " + slot(2), "deleted " + slot(4)}, nil},
	{"first slot, without checkpoints", deleting(slot(1), cp(4), cp(8), cp(11)), []string{"missing " + slot(1)}, nil},
	{"slot behind the last checkpoint", deleting(slot(10), cp(11)), []string{"missing " + slot(10)}, nil},
	{"last slot, which a checkpoint covers", deleting(slot(11)), []string{"missing " + slot(11)}, nil},
	{"last slots, which a checkpoint covers", deleting(slot(9), slot(10), slot(11)), []string{"missing " + slot(9) + " " + slot(11)}, nil},
	// The bucket does not show that it had more slots: brokers notice that themselves.
	{"last slot and its checkpoint", deleting(slot(11), cp(11)), nothing, nil},
	{"slot far away", func(t *testing.T, b bucket) { b[slot(1000)] = b[slot(3)] },
		[]string{"missing " + slot(12) + " " + slot(999), "foreign " + slot(1000)}, nil},
	{"all slots", func(t *testing.T, b bucket) {
		for s := range format.Seq(11) {
			b.delete(t, slot(s+1))
		}
	}, []string{
		"missing " + slot(3), "missing " + slot(5), "missing " + slot(8) + " " + slot(11),
		"deleted " + slot(1) + " " + slot(2), "deleted " + slot(4), "deleted " + slot(6) + " " + slot(7),
	}, nil},

	// Missing checkpoints: no record is lost.
	{"newest checkpoint", deleting(cp(11)), nothing, nil},
	{"all checkpoints", deleting(cp(4), cp(8), cp(11)), nothing, nil},

	{"data object", func(t *testing.T, b bucket) { b.delete(t, b.key(t, "data/")) }, []string{"missing D"}, nil},
	{"seb.json", deleting("seb.json"), []string{"missing seb.json"}, nil},
	{"seb.json and checkpoints", deleting("seb.json", cp(4), cp(8), cp(11)), []string{"missing seb.json"}, nil},

	// Commits that contradict the chain of hashes or the state.
	{"two slots swapped", func(_ *testing.T, b bucket) { b[slot(8)], b[slot(9)] = b[slot(9)], b[slot(8)] },
		[]string{"foreign " + slot(8), "foreign " + slot(9)}, nil},
	{"a slot of another cluster", func(t *testing.T, b bucket) { b[slot(5)] = copyOf(t, otherBucket)[slot(5)] },
		[]string{"foreign " + slot(5)}, nil},
	{"a fork in the middle", func(t *testing.T, b bucket) { b.commit(t, 5, func(c *format.Commit) { c.Nonce[0] ^= 1 }) },
		[]string{"corrupt " + slot(6)}, nil},
	{"a fork at a checkpoint", func(t *testing.T, b bucket) { b.commit(t, 8, func(c *format.Commit) { c.Nonce[0] ^= 1 }) },
		[]string{"corrupt " + cp(8), "corrupt " + slot(9)}, nil},
	{"a fork at the end", func(t *testing.T, b bucket) { b.commit(t, 11, func(c *format.Commit) { c.Nonce[0] ^= 1 }) },
		[]string{"corrupt " + cp(11)}, nil},
	{"a fork that gives the same state", func(t *testing.T, b bucket) { b.commit(t, 11, func(c *format.Commit) { c.Nonce[15] ^= 1 }) },
		[]string{"corrupt " + cp(11)}, nil}, // found by its hash alone
	{"an invalid first commit", func(t *testing.T, b bucket) { b.commit(t, 1, func(c *format.Commit) { c.Prev[0] ^= 1 }) },
		[]string{"corrupt " + slot(1), "corrupt " + slot(2)}, nil},
	{"offsets that leave a hole", func(t *testing.T, b bucket) {
		b.delete(t, cp(11))
		b.commit(t, 11, func(c *format.Commit) { c.Entries[1].(*format.Batch).Base++ })
	}, []string{"corrupt " + slot(11)}, nil},
	{"time that runs backwards", func(t *testing.T, b bucket) {
		b.delete(t, cp(11))
		b.commit(t, 11, func(c *format.Commit) { c.Time = 1 })
	}, []string{"corrupt " + slot(11)}, nil},
	{"a row with another count", func(t *testing.T, b bucket) {
		b.delete(t, cp(11))
		b.commit(t, 11, func(c *format.Commit) { c.Entries[1].(*format.Batch).Count = 2 })
	}, []string{"corrupt " + slot(11)}, nothing},
	{"a row with another time", func(t *testing.T, b bucket) {
		b.delete(t, cp(11))
		b.commit(t, 11, func(c *format.Commit) { c.Entries[1].(*format.Batch).MaxTime++ })
	}, []string{"corrupt " + slot(11)}, nothing},

	// Checkpoints of another log.
	{"a checkpoint of another cluster", func(t *testing.T, b bucket) { b[cp(8)] = copyOf(t, otherBucket)[cp(8)] },
		[]string{"foreign " + cp(8)}, nil},
	{"a checkpoint of another slot", func(_ *testing.T, b bucket) { b[cp(8)] = b[cp(4)] }, []string{"foreign " + cp(8)}, nil},
	{"a checkpoint of another state", func(t *testing.T, b bucket) { b[cp(8)] = otherState(t, b) }, []string{"corrupt " + cp(8)}, nil},
	{"a checkpoint of another state, after a loss", func(t *testing.T, b bucket) {
		b.delete(t, slot(5))
		b[cp(8)] = otherState(t, b) // fsck can compare it only with the next checkpoint
	}, []string{"missing " + slot(5), "corrupt " + slot(9)}, nil},

	// Data objects in each other's place.
	{"another data object", func(t *testing.T, b bucket) {
		b[b.key(t, "data/")] = dataObject(t, b, 5, 1, []byte("batch"))
	}, []string{"foreign D"}, nil},
	{"a data object of another cluster", func(t *testing.T, b bucket) {
		other := copyOf(t, otherBucket)
		b[b.key(t, "data/")] = other[other.key(t, "data/")]
	}, []string{"foreign D"}, nil},
	{"a data object of the same name and another size", func(t *testing.T, b bucket) {
		key := b.key(t, "data/")
		h, err := format.DecodeDataHead(b[key])
		if err != nil {
			t.Fatal(err)
		}
		b[key] = dataObject(t, b, h.Ref.Seq, h.Ref.ID, batchOf("other"))
	}, []string{"corrupt D"}, nil},
	{"a data object with its batches in another order", func(t *testing.T, b bucket) {
		b.edit(b.key(t, "data/"), func(x []byte) []byte {
			size := 12 + int(binary.BigEndian.Uint32(x[format.DataPayloadStart+8:]))
			first := bytes.Clone(x[format.DataPayloadStart : format.DataPayloadStart+size])
			return append(append(x[:format.DataPayloadStart], x[format.DataPayloadStart+size:]...), first...)
		})
	}, []string{"corrupt D"}, nothing},
	{"a commit in a data object's place", func(t *testing.T, b bucket) { b[b.key(t, "data/")] = b[slot(3)] }, []string{"foreign D"}, nil},
	{"a data object in a slot", func(t *testing.T, b bucket) { b[slot(5)] = b[b.key(t, "data/")] }, []string{"foreign " + slot(5)}, nil},

	{"another cluster's seb.json", func(t *testing.T, b bucket) { b["seb.json"] = copyOf(t, otherBucket)["seb.json"] },
		[]string{"foreign seb.json"}, nil},
	{"seb.json in another form", func(_ *testing.T, b bucket) {
		b.edit("seb.json", func(x []byte) []byte { return bytes.ReplaceAll(x, []byte("  "), []byte(" ")) })
	}, []string{"corrupt seb.json"}, nil},

	// Objects that no commit needs.
	{"an orphan", func(t *testing.T, b bucket) {
		b["data/00000000000000000003-00000000000000aa"] = dataObject(t, b, 3, 0xaa, batchOf("late"))
	}, []string{"possibly in use data/00000000000000000003-00000000000000aa"}, nil},
	{"an orphan of another cluster", func(t *testing.T, b bucket) {
		b["data/00000000000000000003-00000000000000aa"] = dataObject(t, copyOf(t, otherBucket), 3, 0xaa, batchOf("late"))
	}, []string{"foreign data/00000000000000000003-00000000000000aa"}, nil},
	{"a probe", adding("probe/1a2b-race-0", "x"), []string{"leftover probe/1a2b-race-0"}, nil},
	{"a file", adding("notes.txt", "x"), []string{"stray notes.txt"}, nil},
	{"a slot's number without zeros", adding("log/5", "x"), []string{"stray log/5"}, nil},
	{"a slot's number with more", adding(slot(5)+".bak", "x"), []string{"stray " + slot(5) + ".bak"}, nil},
	{"a data object's name in upper case", adding("data/00000000000000000003-00000000000000AA", "x"),
		[]string{"stray data/00000000000000000003-00000000000000AA"}, nil},
	{"a bucket in the bucket", func(_ *testing.T, b bucket) { b["sub/seb.json"], b["sub/"+slot(1)] = b["seb.json"], b[slot(1)] },
		[]string{"stray sub/" + slot(1), "stray sub/seb.json"}, nil},

	// Objects that a newer Seb may write.
	{"a slot of a newer version", func(_ *testing.T, b bucket) {
		b.edit(slot(9), func(x []byte) []byte { x[4] = 3; return reseal(x) })
	}, []string{"newer " + slot(9)}, nil},
	{"a checkpoint of a newer version", func(_ *testing.T, b bucket) {
		b.edit(cp(8), func(x []byte) []byte { x[19] = 1; return reseal(x) })
	}, []string{"newer " + cp(8)}, nil},
	{"a data object of a newer version", func(t *testing.T, b bucket) {
		b.edit(b.key(t, "data/"), func(x []byte) []byte { x[4] = 3; return reseal(x) })
	}, []string{"newer D"}, nil},
}

// reseal makes a prologue's checksum right again.
func reseal(b []byte) []byte {
	binary.LittleEndian.PutUint32(b[28:], crc32.Checksum(b[:28], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// otherState returns a checkpoint 8 with valid checksums that has the state of checkpoint 4.
func otherState(t *testing.T, b bucket) []byte {
	t.Helper()
	c, err := format.DecodeCheckpoint(b[cp(8)])
	if err != nil {
		t.Fatal(err)
	}
	old, err := format.DecodeCheckpoint(b[cp(4)])
	if err != nil {
		t.Fatal(err)
	}
	c.Body = old.Body
	return append(format.EncodeCheckpoint(c), c.Body...)
}

// dataObject returns a data object of the bucket's cluster.
func dataObject(t *testing.T, b bucket, seq format.Seq, id uint64, batch []byte) []byte {
	t.Helper()
	c, err := format.DecodeCluster(b["seb.json"])
	if err != nil {
		t.Fatal(err)
	}
	return append(format.EncodeDataHead(&format.DataHead{
		Cluster: c.ID, Ref: format.DataRef{Seq: seq, ID: id}, Batches: 1, PayloadSize: uint32(len(batch)),
	}), batch...)
}

// fsck finds no damage in a bucket that brokers wrote, and finds each damage that is done to it, and
// nothing else.
func TestFsckFindsEveryDamage(t *testing.T) {
	if testing.Short() {
		t.Skip("nothing goes on at once")
	}
	for _, test := range append(damages, brokenObjects(t)...) {
		t.Run(test.name, func(t *testing.T) {
			b := copyOf(t, goodBucket)
			data := b.key(t, "data/")
			test.do(t, b)
			for _, deep := range []bool{true, false} {
				want := test.want
				if !deep && test.shallow != nil {
					want = test.shallow
				}
				wantFound(t, b, deep, data, want)
			}
		})
	}
}

func wantFound(t *testing.T, b bucket, deep bool, data string, want []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r, err := fsck.Check(t.Context(), b.store(t), fsck.Options{Deep: deep})
		if err != nil {
			t.Fatal(err)
		}
		got := found(r)
		for i := range got {
			got[i] = strings.Replace(got[i], data, "D", 1)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("deep %v: findings, wanted and got:\n%s", deep, diff)
			for _, f := range r.Findings {
				t.Logf("%s %s: %s", f.Class, f.Key, f.Detail)
			}
		}
	})
}

// brokenObjects returns a damage for each kind of object and each way to break it.
func brokenObjects(t *testing.T) []damage {
	t.Helper()
	good := copyOf(t, goodBucket)
	var all []damage
	for _, key := range []string{"seb.json", slot(1), slot(3), slot(6), slot(11), cp(4), cp(11), good.key(t, "data/")} {
		name := strings.Replace(key, good.key(t, "data/"), "D", 1)
		for how, change := range map[string]func([]byte) []byte{
			"emptied":        func([]byte) []byte { return []byte{} },
			"cut in half":    func(b []byte) []byte { return b[:len(b)/2] },
			"cut by a byte":  func(b []byte) []byte { return b[:len(b)-1] },
			"longer":         func(b []byte) []byte { return append(b, "garbage"...) },
			"filled by zero": func(b []byte) []byte { clear(b); return b },
			"first page lost": func(b []byte) []byte {
				clear(b[:min(len(b), 4096)])
				return b
			},
		} {
			all = append(all, damage{name + " " + how, func(_ *testing.T, b bucket) { b.edit(key, change) }, []string{"corrupt " + name}, nil})
		}
		last := damage{name + " with another last byte", func(_ *testing.T, b bucket) {
			b.edit(key, func(b []byte) []byte { b[len(b)-1] ^= 0x80; return b })
		}, []string{"corrupt " + name}, nil}
		if name == "D" || key == slot(3) || key == slot(11) {
			last.shallow = nothing // the damage is in a batch, which only --deep reads
		}
		all = append(all, last)
	}
	return all
}

func TestFsckCountsWhatItChecked(t *testing.T) {
	r, err := fsck.Check(t.Context(), copyOf(t, goodBucket).store(t), fsck.Options{Deep: true})
	if err != nil {
		t.Fatal(err)
	}
	var size int64
	for _, b := range copyOf(t, goodBucket) {
		size += int64(len(b))
	}
	if r.Commits != 11 || r.Checkpoints != 3 || r.DataObjects != 1 || r.Batches < 10 || r.First != 1 || r.Last != 11 {
		t.Errorf("the report is %+v", r)
	}
	if r.Bytes < size || r.Bytes > size+1000 { // fsck reads identities and one head twice
		t.Errorf("it read %d bytes of a bucket of %d", r.Bytes, size)
	}
}
