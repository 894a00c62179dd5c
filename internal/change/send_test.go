package change

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/leases"
	"github.com/simple-event-broker/seb/internal/pack"
)

func delivery(p format.Partition, o format.Offset, n uint32) leases.Delivery {
	return leases.Delivery{Place: leases.Place{Partition: p, Offset: o}, Attempt: n}
}

// sendable is a change that another broker can make.
type sendable interface {
	Sent
	Encode(w *pack.Writer)
}

func sent() []sendable {
	delay := 3 * time.Second
	answers := []*Answer{{Queue: 7, Delivery: delivery(1, 20, 2)}, {Queue: 7, Delivery: delivery(0, 3, 1)}}
	move := MoveConsumer{
		ConsumerName: ConsumerName{Topic: "t", Consumer: "c"}, IfVersion: "7.3",
		Expect: []format.Position{{Partition: 0, Offset: 5}}, To: []format.Position{{Partition: 0, Offset: 9}, {Partition: 2, Offset: 1}},
	}
	return []sendable{
		&move,
		&MoveConsumer{ConsumerName: ConsumerName{Topic: "t", Consumer: "c"}},
		&Commit{
			Moves: []CommitMove{{Part: "positions/0", MoveConsumer: move}},
			Acks:  []CommitAck{{Part: "acks/0", QueueName: QueueName{Topic: "t", Queue: "q"}, Answers: answers}},
		},
		&Commit{},
		&Commit{After: 1_767_225_600_250_125},
		&Commit{
			Ends: []CommitEnds{
				{Part: "ends/0", Topic: "t", ID: 7, Ends: []format.Position{{Partition: 0, Offset: 41}, {Partition: 1}}},
				{Part: "ends/1", Topic: "u", ID: 1 << 40},
			},
			Moves: []CommitMove{{Part: "positions/0", MoveConsumer: move}},
		},
		AckRecords{QueueName: QueueName{Topic: "t", Queue: "q"}, Answers: answers},
		NackRecords{QueueName: QueueName{Topic: "t", Queue: "q"}, Delay: &delay, AtLeast: time.Second, Reason: "no", Answers: answers},
		NackRecords{QueueName: QueueName{Topic: "t", Queue: "q"}},
		DeadLetter{QueueName: QueueName{Topic: "t", Queue: "q"}, QueueID: 7, Last: delivery(1, 20, 2), Reason: "r", Epoch: 3},
	}
}

func TestSentChangesAreDecodedAsTheyWere(t *testing.T) {
	for _, x := range sent() {
		var w pack.Writer
		x.Encode(&w)
		r := pack.NewReader(w.B)
		got := Decode(r)
		r.End()
		if r.Err() != nil || !reflect.DeepEqual(got, Sent(x)) {
			t.Errorf("%#v is decoded as %#v: %v", x, got, r.Err())
		}
		for n := range w.B {
			short := pack.NewReader(w.B[:n])
			Decode(short)
			if !errors.Is(short.Err(), pack.ErrMalformed) && !errors.Is(short.Err(), pack.ErrUnknown) {
				t.Errorf("%d of %d bytes of a %T: %v", n, len(w.B), x, short.Err())
			}
		}
	}
}

func TestChangesOfNewerVersionsAreUnknown(t *testing.T) {
	var w pack.Writer
	w.U16(999)
	r := pack.NewReader(w.B)
	if x := Decode(r); x != nil || !errors.Is(r.Err(), pack.ErrUnknown) {
		t.Errorf("decoded as %v: %v", x, r.Err())
	}
}

// A broker of an older version knows sentCommit, and would ignore conditions behind it.
func TestConditionsHaveAKindOfTheirOwn(t *testing.T) {
	for _, x := range []*Commit{{After: 1}, {Ends: []CommitEnds{{Topic: "t"}}}} {
		var w pack.Writer
		x.Encode(&w)
		if kind := pack.NewReader(w.B).U16(); kind != 7 {
			t.Errorf("%+v has the kind %d", x, kind)
		}
	}
	var w pack.Writer
	(&Commit{}).Encode(&w)
	if kind := pack.NewReader(w.B).U16(); kind != 2 {
		t.Errorf("a commit without conditions has the kind %d", kind)
	}
	w = pack.Writer{}
	w.U16(7)
	w.I64(0)
	w.Count(0)
	w.Count(0)
	w.Count(0)
	r := pack.NewReader(w.B)
	if Decode(r); !errors.Is(r.Err(), pack.ErrMalformed) {
		t.Errorf("a conditional commit without a condition: %v", r.Err())
	}
}

// FuzzDecode: no bytes of another broker cause a panic, and what is decoded has the same bytes again.
func FuzzDecode(f *testing.F) {
	for _, x := range sent() {
		var w pack.Writer
		x.Encode(&w)
		f.Add(w.B)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := pack.NewReader(b)
		got := Decode(r)
		if r.Err() != nil {
			return
		}
		x, ok := got.(sendable)
		if !ok {
			return // record claims are encoded from what their owner knows
		}
		used := b[:len(b)-r.Left()]
		var w pack.Writer
		x.Encode(&w)
		if string(w.B) != string(used) {
			t.Errorf("%x is encoded as %x", used, w.B)
		}
	})
}
