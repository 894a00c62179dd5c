package httpapi

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// A worker that does not wait gets a record of a partition that was added after other records were handed
// out, although the owner must first commit a dispatch limit for the partition.
func TestRecordOfAnAddedPartitionIsHandedOutToWhoDoesNotWait(t *testing.T) {
	store := storetest.Slow(objstore.NewMemory(), 50*time.Millisecond)
	bubbleOn(t, store, seb.Options{Batching: seb.Immediate()}, Options{}, 0, func(t *testing.T, s *server) {
		s.append("orders", "before")
		s.setQueue("mail", "", http.StatusCreated)
		s.answered("ack", http.StatusOK, s.wantHanded("", "0#1")...)
		for partitions := 2; partitions <= 4; partitions++ {
			s.do("PATCH", "/v1/topics/orders", strings.NewReader(fmt.Sprintf(`{"partitions":%d}`, partitions))).want(t, http.StatusOK)
			s.appendTo(partitions-1, "after", "after")
			for offset := range 2 {
				ms := s.wantHanded("", fmt.Sprintf("%d#1", offset))
				if len(ms) == 1 && ms[0].Partition != int32(partitions-1) {
					t.Errorf("handed out is %+v", ms[0])
				}
			}
			began := time.Now()
			s.wantHanded("", "")
			if took := time.Since(began); took > time.Second {
				t.Errorf("with nothing there the answer took %v", took)
			}
		}
	})
}
