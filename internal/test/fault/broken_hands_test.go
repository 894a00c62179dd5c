package fault_test

import (
	"slices"
	"testing"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// last returns the last slot or checkpoint in the bucket.
func (r *brokenRun) last(prefix string) format.Seq {
	keys := r.bucket.Keys(prefix)
	if len(keys) == 0 {
		return 0
	}
	s, _ := format.ParseSeqKey(prefix, keys[len(keys)-1])
	return s
}

func (r *brokenRun) nextSlot() string { return format.LogKey(r.last(format.LogPrefix) + 1) }

func (r *brokenRun) newestCheckpoint() string {
	return format.CheckpointKey(r.last(format.CheckpointPrefix))
}

// aSlot returns the key of a commit that has records: the last such commit, or a random one.
func (r *brokenRun) aSlot(last bool) string {
	r.t.Helper()
	keys := slices.DeleteFunc(r.bucket.Keys(format.LogPrefix), func(key string) bool {
		c, err := format.DecodeCommit(r.bucket.Body(key))
		if err != nil {
			r.t.Fatal(err)
		}
		return c.PayloadSize == 0
	})
	if last {
		return keys[len(keys)-1]
	}
	return keys[r.rng.IntN(len(keys))]
}

// foreignCommit returns the commit that the log of another cluster has in a slot.
func (r *brokenRun) foreignCommit(slot format.Seq) []byte {
	other := storetest.NewBucket()
	b := openOnly(r.t, other, immediate())
	for range slot {
		mustAppend(r.t, b, "t", "of another cluster")
	}
	kill(r.t, b)
	return other.Body(format.LogKey(slot))
}

func (r *brokenRun) misplace(from, to string) { r.bucket.Put(to, r.bucket.Body(from)) }

func (r *brokenRun) swap(a, b string) {
	bodyA, bodyB := r.bucket.Body(a), r.bucket.Body(b)
	r.bucket.Put(a, bodyB)
	r.bucket.Put(b, bodyA)
}

// hands are changes that an outsider makes in a bucket. A running broker does not read some objects
// again, such as seb.json; changes of these are noticed at the next start. The loss of the last
// objects need not be noticed each time: once all brokers that knew them have ended, no broker can
// notice.
func hands() []lie {
	const (
		pLog        = format.LogPrefix
		pCheckpoint = format.CheckpointPrefix
	)
	garbage := []byte("this is no object of a log")
	ls := []lie{
		{name: "garbage in the next slot", hand: func(r *brokenRun) { r.bucket.Put(r.nextSlot(), garbage) }},
		{name: "nothing in the next slot", hand: func(r *brokenRun) { r.bucket.Put(r.nextSlot(), nil) }},
		{name: "a foreign commit in the next slot", hand: func(r *brokenRun) {
			r.bucket.Put(r.nextSlot(), r.foreignCommit(r.last(pLog)+1))
		}},
		{name: "the last commit in the next slot too", hand: func(r *brokenRun) { r.misplace(r.aSlot(true), r.nextSlot()) }},
		{name: "a commit far ahead", hand: func(r *brokenRun) { r.misplace(r.aSlot(true), format.LogKey(r.last(pLog)+7)) }},
		{name: "garbage as a newer checkpoint", hand: func(r *brokenRun) {
			r.bucket.Put(format.CheckpointKey(r.last(pLog)+1000), garbage)
		}},
		{name: "a checkpoint under a later name", hand: func(r *brokenRun) {
			r.misplace(r.newestCheckpoint(), format.CheckpointKey(r.last(pLog)+1000))
		}},
		{name: "two slots swapped", hand: func(r *brokenRun) { r.swap(r.aSlot(true), format.LogKey(2)) }},
		{name: "no slots", forks: true, seldom: true, hand: func(r *brokenRun) { r.bucket.Restore(nil, pLog) }},
		{name: "no checkpoints", harmless: true, hand: func(r *brokenRun) { r.bucket.Restore(nil, pCheckpoint) }},
		{name: "nothing at all", forks: true, seldom: true, hand: func(r *brokenRun) { r.bucket.Restore(nil, "") }},
		{name: "garbage in seb.json", hand: func(r *brokenRun) { r.bucket.Put(format.ClusterKey, garbage) }},
		{name: "no seb.json", hand: func(r *brokenRun) { r.bucket.Remove(format.ClusterKey) }},
		{name: "seb.json of another cluster", hand: func(r *brokenRun) {
			other := storetest.NewBucket()
			kill(r.t, openOnly(r.t, other, immediate()))
			r.bucket.Put(format.ClusterKey, other.Body(format.ClusterKey))
		}},
		{name: "objects of others", harmless: true, hand: func(r *brokenRun) {
			for _, key := range []string{"photos/cat.jpg", pLog + "notes.txt", pLog + "7", pCheckpoint + "x", format.DataPrefix + "y", "zzz"} {
				r.bucket.Put(key, garbage)
			}
		}},
		{name: "a slot gone", forks: true, hand: func(r *brokenRun) { r.bucket.Remove(r.aSlot(false)) }},
		{name: "the last slot gone", forks: true, seldom: true, hand: func(r *brokenRun) { r.bucket.Remove(r.aSlot(true)) }},
		{name: "newest checkpoint gone", harmless: true, hand: func(r *brokenRun) { r.bucket.Remove(r.newestCheckpoint()) }},
	}
	for _, d := range storetest.Damages() {
		// The head of a slot below a checkpoint is never read again.
		seldom := d.Name == "a bit flipped" || d.Name == "zeros from somewhere on"
		for _, last := range []bool{false, true} {
			name := map[bool]string{false: "a slot ", true: "the last slot "}[last] + d.Name
			ls = append(ls, lie{name: name, seldom: seldom, hand: func(r *brokenRun) {
				key := r.aSlot(last)
				r.bucket.Put(key, d.Bend(r.rng, r.bucket.Body(key)))
			}})
		}
		ls = append(ls, lie{name: "data " + d.Name, hand: func(r *brokenRun) { // damages every data object
			r.append(0, 1)
			for _, key := range r.bucket.Keys(format.DataPrefix) {
				r.bucket.Put(key, d.Bend(r.rng, r.bucket.Body(key)))
			}
		}, seldom: true}) // there may be no data object
	}
	return ls
}

func TestHandsInTheBucketAreNoticed(t *testing.T) {
	for _, l := range hands() {
		t.Run(l.name, func(t *testing.T) { tellLie(t, l, 4) })
	}
}

// restores are restorations of an older copy of a bucket while brokers run on it, in
// whole or in part, and brokers that are moved to a copy.
//
// If all brokers that knew the newer objects end before anything is written above the
// older ones, then the older copy is a whole log, and nobody can know. So the loss need
// not be noticed each time.
func restores() []lie {
	restore := func(prefix string) func(*brokenRun) {
		return func(r *brokenRun) { r.bucket.Restore(r.bucket.CopyAsOf(r.past), prefix) }
	}
	return []lie{
		{name: "all", forks: true, seldom: true, hand: restore("")},
		{name: "log", forks: true, seldom: true, hand: restore(format.LogPrefix)},
		{name: "checkpoints", harmless: true, hand: restore(format.CheckpointPrefix)},
		{name: "data", seldom: true, hand: restore(format.DataPrefix)},
		{name: "all, and the newer back", forks: true, seldom: true,
			hand: func(r *brokenRun) {
				newer := r.bucket.Copy()
				r.bucket.Restore(r.bucket.CopyAsOf(r.past), "")
				r.lie.undo = func(r *brokenRun) { r.bucket.Restore(newer, "") }
			}},
		{name: "one broker moved to a copy and back", forks: true, seldom: true, tell: moved(false)},
		{name: "one broker moved to an older copy and back", forks: true, seldom: true, tell: moved(true)},
	}
}

// moved moves the second broker to a copy of the bucket, as it is now or in the past, until the lie is
// undone.
func moved(older bool) func(*brokenRun, *witnessed) {
	return func(r *brokenRun, w *witnessed) {
		if w.index == 0 {
			return
		}
		if r.elsewhere == nil {
			at := r.begun
			if older {
				at = r.past
			}
			r.elsewhere = storetest.Elsewhere(r.bucket.CopyAsOf(at).Bucket())
		}
		w.faulty.On("", "", r.untilUndone(r.elsewhere))
	}
}

func TestRestoredCopyIsNeverServedAsTheSameLog(t *testing.T) {
	for _, l := range restores() {
		t.Run(l.name, func(t *testing.T) { tellLie(t, l, 12) })
	}
}
