package main

import (
	"strings"
	"testing"

	"github.com/simple-event-broker/seb/internal/format"
)

const introductionName = "data/00000000000000000002-0000000000000abd"

func introductionOf() []byte {
	return format.EncodeIntroduction(&format.Introduction{Ref: format.DataRef{Seq: 2, ID: 0xabd}, Session: format.SessionKey{0xab}})
}

func TestDumpShowsIntroductions(t *testing.T) {
	body := introductionOf()
	var out strings.Builder
	d := &dumper{printer: printer{w: &out}}
	if err := d.dump(body, introductionName); err != nil || d.Bad > 0 {
		t.Errorf("%d faults, %v", d.Bad, err)
	}
	key := "ab" + strings.Repeat("00", 31)
	for _, want := range []string{"object       introduction, ", "begun after  slot 2\n", "session      " + format.SessionKey{0xab}.ID().String() + ", key " + key + "\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not show %q:\n%s", want, &out)
		}
	}
	if p, err := format.DecodePrologue(body); err != nil || judgeHead(p, body, int64(len(body))) != nil {
		t.Errorf("the head is refused: %v", judgeHead(p, body, int64(len(body))))
	}
}
