package seb

import (
	"testing"

	"github.com/simple-event-broker/seb/objstore"
)

// If a topic is deleted while a follower begins, and created again with fewer partitions, the follower
// begins again on the new topic.
func TestFollowerBeginsAgain(t *testing.T) {
	b, err := Open(t.Context(), objstore.NewMemory(), Options{Batching: Immediate()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	create := func(partitions int32) {
		if _, _, err := b.CreateTopic(t.Context(), "t", TopicOptions{Partitions: partitions}); err != nil {
			t.Fatal(err)
		}
	}
	create(5)
	f, tries := &Follower{b: b, topic: "t", only: AllPartitions}, 0
	err = twiceIfRecreated(b, "t", func() error {
		err := f.begin(t.Context(), Earliest)
		if tries++; tries == 1 {
			if err := b.DeleteTopic(t.Context(), "t"); err != nil {
				t.Error(err)
			}
			create(2)
			_, err = f.ready()
		}
		return err
	})
	if err != nil || tries != 2 || len(f.next) != 2 {
		t.Errorf("it began %d times, with %d partitions: %v", tries, len(f.next), err)
	}
}
