package queue_test

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/test/kit"
	"github.com/simple-event-broker/seb/internal/test/loglines"
	"github.com/simple-event-broker/seb/objstore"
)

// A running broker that loses queues to a broker that can't ask it logs which option to set, at most
// once a minute.
func TestLosingAQueueNamesTheAddressToSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		var said strings.Builder // slog's handler locks it
		o := kit.InVirtualTime(immediate())
		o.Logger = loglines.Text(t, &said, slog.LevelWarn)
		one := open(t, store, o)
		two := open(t, store, kit.InVirtualTime(immediate()))
		queueOf(t, one, 0, 0)
		names := []string{"a", "b", "c"}
		for _, name := range names {
			mustSet(t, one.Queue("t", name), seb.QueueUpdate{})
		}
		lose := func(name string) {
			t.Helper()
			for _, b := range []*seb.Broker{one, two} {
				if _, err := b.Queue("t", name).Receive(t.Context(), seb.ReceiveOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			if _, _, err := one.Queue("t", name).Owner(t.Context()); err != nil { // this syncs
				t.Fatal(err)
			}
		}
		lose("a")
		lose("b")
		if text := said.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "seb serve --advertise") || !strings.Contains(text, "queue=a") {
			t.Errorf("logged:\n%s", text)
		}
		time.Sleep(2 * time.Minute)
		lose("c")
		if text := said.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, "queue=c") {
			t.Errorf("logged:\n%s", text)
		}
	})
}
