package format

import (
	"errors"
	"testing"
)

func TestCheckpointIsJudgedByItsFirstBytesAndSize(t *testing.T) {
	c := &Checkpoint{Seq: 7, Body: []byte("body of a checkpoint")}
	head := EncodeCheckpoint(c)
	whole := append(head[:len(head):len(head)], c.Body...)
	size := int64(len(whole))
	for _, b := range [][]byte{head, whole[:len(head)+3], whole} {
		if err := CheckCheckpointStart(b, size); err != nil {
			t.Errorf("%d of %d bytes: %v", len(b), size, err)
		}
		for _, wrong := range []int64{0, int64(len(head)), size - 1, size + 1, CheckpointBytesMax} {
			if err := CheckCheckpointStart(b, wrong); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%d bytes of an object of %d instead of %d: %v", len(b), wrong, size, err)
			}
		}
	}
	for _, b := range [][]byte{nil, head[:len(head)-1], make([]byte, len(head))} {
		if err := CheckCheckpointStart(b, size); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%x: %v", b, err)
		}
	}
}
