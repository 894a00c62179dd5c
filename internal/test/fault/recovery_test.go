package fault_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/test/loglines"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

func TestLongReplayReportsProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := newFaulty()
		b := openOnly(t, memory, immediate())
		for _, v := range numbered("v", 200) {
			mustAppend(t, b, "t", v)
		}
		kill(t, b)
		faulty.On(objstore.VerbGet, format.LogPrefix, storetest.Delay(4*time.Second))
		var text bytes.Buffer
		opts := immediate()
		opts.Logger = loglines.Text(t, &text, slog.LevelInfo)
		kill(t, openOnly(t, faulty, opts))
		// 201 slots take four rounds of 4 s. The progress is logged after 8 s and 16 s.
		if got := strings.Count(text.String(), "recovering"); got != 2 || !strings.Contains(text.String(), "slot=") {
			t.Errorf("the progress was logged %d times, want 2:\n%s", got, text.String())
		}
	})
}
