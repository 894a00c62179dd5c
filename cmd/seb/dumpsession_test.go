package main

import (
	"strings"
	"testing"

	"github.com/simple-event-broker/seb/internal/format"
)

func TestDumpShowsSessions(t *testing.T) {
	var out strings.Builder
	d := &dumper{printer: printer{w: &out}, records: true}
	c := &format.Commit{Seq: 1, Entries: []format.Entry{
		&format.WriterMark{Session: format.SessionID{0xef}, Pause: 20, Address: "http://10.0.0.1:51313"}, &format.WriterMark{Session: format.SessionID{0x12}, Pause: format.PauseUnknown},
		&format.SessionNamed{Session: format.SessionKey{0xab}}, &format.SessionNamed{Session: format.SessionKey{0xcd}, Queue: 3, Epoch: 2},
		&format.BundleMark{Session: format.SessionID{0x34}, Number: 5, Requests: 9, Verdicts: []format.Verdict{{Request: 1, Code: format.VerdictAgain}}},
		&format.BundleMark{Session: format.SessionID{0x34}, Number: 6, Requests: 1},
	}}
	if err := d.dump(format.EncodeCommit(c), "log/00000000000000000001"); err != nil || d.Bad > 0 {
		t.Fatalf("%d faults, %v\n%s", d.Bad, err, &out)
	}
	zeros := strings.Repeat("00", 31)
	for _, want := range []string{
		"written by session ef" + strings.Repeat("00", 15) + ` at "http://10.0.0.1:51313", which will probably write again after 20 ms`,
		"written by session 12" + strings.Repeat("00", 15) + "\n",
		"session ab" + zeros + " is one of this log", "session cd" + zeros + " is the owner of queue 3, epoch 2",
		"bundle 5 of session 34" + strings.Repeat("00", 15) + ", requests: 9, not in this commit: 1\n",
		"bundle 6 of session 34" + strings.Repeat("00", 15) + ", requests: 1\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not show %q:\n%s", want, &out)
		}
	}
}
