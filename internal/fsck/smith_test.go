package fsck_test

import (
	"bytes"
	"encoding/binary"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/fsck"
	"github.com/simple-event-broker/seb/internal/record"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/objstore"
)

// smith makes valid and invalid logs, object by object, without a broker.
type smith struct {
	testing.TB
	objects map[string][]byte
	cluster format.ClusterID
	state   *state.State
	prev    format.Hash
	nonces  uint64
}

func newSmith(t testing.TB) *smith {
	t.Helper()
	s := &smith{TB: t, objects: map[string][]byte{}, cluster: format.ClusterID{1, 2, 3}, state: state.New()}
	b, err := format.EncodeCluster(format.Cluster{
		ID: s.cluster, Format: 2, DeleteDelay: format.Duration(24 * time.Hour), Margin: format.Duration(time.Hour),
		Created: time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC),
	})
	if err != nil {
		t.Fatal(err)
	}
	s.objects[format.ClusterKey] = b
	return s
}

// next returns the next commit, without entries.
func (s *smith) next() *format.Commit {
	c := &format.Commit{Cluster: s.cluster, Seq: s.state.Seq() + 1, Prev: s.prev, Time: s.state.NextTime(s.state.Time())}
	s.nonces++
	binary.LittleEndian.PutUint64(c.Nonce[:], s.nonces)
	return c
}

// put writes a commit and applies it to the state.
func (s *smith) put(c *format.Commit, payload []byte) string {
	s.Helper()
	c.PayloadSize = uint32(len(payload))
	b := append(format.EncodeCommit(c), payload...)
	if err := s.state.Apply(c); err != nil {
		s.Fatal(err)
	}
	s.prev = c.Hash
	key := format.LogKey(c.Seq)
	s.objects[key] = b
	return key
}

// entries writes a commit with these entries.
func (s *smith) entries(entries ...format.Entry) string {
	s.Helper()
	c := s.next()
	c.Entries = entries
	return s.put(c, nil)
}

// end returns the next offset of topic id's partition 0.
func (s *smith) end(id format.TopicID) format.Offset { return s.state.TopicByID(id).Partitions[0].End }

// row returns the entry of a batch that is appended to topic id.
func (s *smith) row(id format.TopicID, object uint32, pos int, batch []byte, base format.Offset) *format.Batch {
	s.Helper()
	x, err := record.Parse(batch)
	if err != nil {
		s.Fatal(err)
	}
	return &format.Batch{
		Topic: id, Object: object, Base: base, MaxTime: x.MaxTimestamp, Count: uint32(x.Count),
		Pos: uint32(pos), Size: uint32(len(batch)), CRC: x.CRC,
	}
}

// records writes a commit with an inline batch.
func (s *smith) records(id format.TopicID, values ...string) string {
	s.Helper()
	b := batchOf(values...)
	c := s.next()
	c.Entries = []format.Entry{s.row(id, 0, 0, b, s.end(id))}
	return s.put(c, b)
}

// upload writes a data object without a commit.
func (s *smith) upload(seq format.Seq, id uint64, batches ...[]byte) format.DataRef {
	payload := slices.Concat(batches...)
	h := &format.DataHead{
		Cluster: s.cluster, Ref: format.DataRef{Seq: seq, ID: id}, Batches: uint32(len(batches)), PayloadSize: uint32(len(payload)),
	}
	s.objects[h.Ref.Key()] = append(format.EncodeDataHead(h), payload...)
	h.Ref.Size = uint32(len(payload) + format.DataPayloadStart)
	return h.Ref
}

// far writes a data object, and a commit that refers to its batches.
func (s *smith) far(topic format.TopicID, id uint64, batches ...[]byte) (commitKey, dataKey string) {
	s.Helper()
	ref := s.upload(s.state.Seq(), id, batches...)
	c := s.next()
	c.Data = []format.DataRef{ref}
	base, pos := s.end(topic), 0
	for _, b := range batches {
		x := s.row(topic, 1, pos, b, base)
		c.Entries = append(c.Entries, x)
		base, pos = base+format.Offset(x.Count), pos+len(b)
	}
	return s.put(c, nil), ref.Key()
}

// checkpoint writes a checkpoint of the current state.
func (s *smith) checkpoint() string {
	c := &format.Checkpoint{Cluster: s.cluster, Seq: s.state.Seq(), Hash: s.prev, Body: s.state.View().Encode()}
	key := format.CheckpointKey(c.Seq)
	s.objects[key] = append(format.EncodeCheckpoint(c), c.Body...)
	return key
}

// store returns a store with the objects made so far.
func (s *smith) store() *objstore.Memory {
	s.Helper()
	m := objstore.NewMemory()
	for key, b := range s.objects {
		if _, err := m.Create(s.Context(), key, b); err != nil {
			s.Fatal(err)
		}
	}
	return m
}

func (s *smith) delete(keys ...string) {
	s.Helper()
	for _, key := range keys {
		if s.objects[key] == nil {
			s.Fatalf("there is no %s to delete", key)
		}
		delete(s.objects, key)
	}
}

// change returns a copy of the smith in which one object has other bytes.
func (s *smith) change(key string, b []byte) *smith {
	c := *s
	c.objects = maps.Clone(s.objects)
	c.objects[key] = b
	return &c
}

func batchOf(values ...string) []byte {
	var b record.Builder
	for _, v := range values {
		b.Append(&record.Record{Value: []byte(v), Timestamp: 1_700_000_000_000})
	}
	return bytes.Clone(b.Finish())
}

// check checks a store that no broker uses, in virtual time.
func check(t testing.TB, store objstore.Store, deep bool) *fsck.Report {
	t.Helper()
	r, err := fsck.Check(t.Context(), store, fsck.Options{Deep: deep})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Complete {
		t.Error("the report is not complete")
	}
	return r
}

// findings returns the findings of a report, each as "class key" or "class key through".
func findings(r *fsck.Report) []string {
	out := []string{}
	for _, f := range r.Findings {
		s := string(f.Class) + " " + f.Key
		if f.Through != "" {
			s += " " + f.Through
		}
		out = append(out, s)
	}
	return out
}

func wantFindings(t testing.TB, r *fsck.Report, want ...string) {
	t.Helper()
	if want == nil {
		want = []string{}
	}
	if diff := cmp.Diff(want, findings(r)); diff != "" {
		t.Errorf("findings, wanted and got:\n%s", diff)
		for _, f := range r.Findings {
			t.Logf("%s %s: %s", f.Class, f.Key, f.Detail)
		}
	}
}

// bubble runs a test in virtual time, so that pauses take no real time.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}
