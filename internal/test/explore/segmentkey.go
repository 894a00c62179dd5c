package explore

import (
	"encoding/binary"
	"slices"
)

// segmentKeys is the model of compaction and deletion.
type segmentKeys struct {
	cfg  *SegmentConfig
	logs *logs
	key  []byte
}

func newSegmentKeys(cfg *SegmentConfig) *segmentKeys {
	return &segmentKeys{cfg: cfg, logs: newLogs(cfg)}
}

// Explore is like [Explore], for compaction and deletion.
func (cfg SegmentConfig) Explore() Result {
	return explore[segmentWorld](newSegmentKeys(&cfg), cfg.StatesMax)
}

// Walk is like [Walk], for compaction and deletion.
func (cfg SegmentConfig) Walk(seed uint64, steps int) Result {
	return walk[segmentWorld](newSegmentKeys(&cfg), seed, steps)
}

func (k *segmentKeys) begin() *segmentWorld { return newSegmentWorld(k.cfg, k.logs) }

func (k *segmentKeys) of(w *segmentWorld) []byte {
	b := binary.AppendUvarint(k.key[:0], uint64(w.log))
	b = binary.LittleEndian.AppendUint64(b, w.slots)
	b = append(b, w.now, w.trims, w.floors, byte(len(w.checkpoints)), byte(len(w.uploads)))
	for _, c := range w.checkpoints {
		b = append(b, c.slot, c.since, bit(c.stands))
	}
	slices.SortFunc(w.uploads, func(x, y segmentUpload) int { return x.upload - y.upload })
	for _, u := range w.uploads {
		b = append(binary.AppendUvarint(b, uint64(u.upload)), bit(u.landed)|bit(u.stands)<<1)
	}
	k.key = b
	return b
}

func bit(set bool) byte {
	if set {
		return 1
	}
	return 0
}

func (k *segmentKeys) worldOf(key []byte, c *choices, t *trace) *segmentWorld {
	r, w := reader{key}, k.begin()
	w.choices, w.trace = c, t
	w.log = int(r.fold())
	w.slots = binary.LittleEndian.Uint64(r.b)
	r.b = r.b[8:]
	w.now, w.trims, w.floors = r.byte(), r.byte(), r.byte()
	checkpoints, uploads := r.byte(), r.byte()
	for range checkpoints {
		w.checkpoints = append(w.checkpoints, segmentCheckpoint{slot: r.byte(), since: r.byte(), stands: r.byte() == 1})
	}
	for range uploads {
		u := segmentUpload{upload: int(r.fold())}
		bits := r.byte()
		u.landed, u.stands = bits&1 != 0, bits&2 != 0
		w.uploads = append(w.uploads, u)
	}
	return w
}
