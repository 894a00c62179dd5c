package seb_test

import (
	"encoding"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/simple-event-broker/seb"
)

var _ encoding.TextAppender = seb.Bookmark{}

func TestBookmarkIsReadAsItIsWritten(t *testing.T) {
	for s, want := range map[string]seb.Bookmark{
		"1f0c6a3e.7:41,0,12": {Cluster: "1f0c6a3e", Topic: 7, Partition: seb.AllPartitions, Offsets: []seb.Offset{41, 0, 12}},
		"00000000.1:0":       {Cluster: "00000000", Topic: 1, Partition: seb.AllPartitions, Offsets: []seb.Offset{0}},
		"1f0c6a3e.7/2:12":    {Cluster: "1f0c6a3e", Topic: 7, Partition: 2, Offsets: []seb.Offset{12}},
		"1f0c6a3e.18446744073709551615/2147483647:9223372036854775807": {
			Cluster: "1f0c6a3e", Topic: 1<<64 - 1, Partition: 1<<31 - 1, Offsets: []seb.Offset{1<<63 - 1},
		},
	} {
		got, err := seb.ParseBookmark(s)
		if err != nil || !cmp.Equal(got, want) {
			t.Errorf("%s is %+v, %v; want %+v", s, got, err, want)
		}
		if got.String() != s {
			t.Errorf("%s is written as %s", s, got)
		}
	}
	longest := "ffffffff.18446744073709551615:" + strings.Repeat("9223372036854775807,", seb.FollowPartitionsMax)
	if _, err := seb.ParseBookmark(strings.TrimSuffix(longest, ",")); err != nil {
		t.Errorf("the longest there can be: %v", err)
	}
}

func TestWhatIsNoBookmarkIsRefused(t *testing.T) {
	for _, s := range []string{
		"", "41", ":", ".:", "1f0c6a3e.7", "1f0c6a3e.7:", "1f0c6a3e.7:,", "1f0c6a3e.7:1,", "1f0c6a3e.7:-1", "1f0c6a3e.7:+1", "1f0c6a3e.7: 1",
		"1f0c6a3e.7:9223372036854775808", "1f0c6a3e.18446744073709551616:1", "1F0C6A3E.7:1", "1f0c6a3.7:1", "1f0c6a3e7:1",
		"1f0c6a3e.7/:1", "1f0c6a3e.7/-1:1", "1f0c6a3e.7/2147483648:1", "1f0c6a3e.7/1:1,2", "1f0c6a3e.7/1/1:1", "1f0c6a3e.7:1:2",
		"1f0c6a3e.7:" + strings.Repeat("0,", seb.FollowPartitionsMax) + "0",
		"1f0c6a3e.7:" + strings.Repeat("0", 40000),
	} {
		_, err := seb.ParseBookmark(s)
		if e := wantError(t, err, seb.CodeInvalidRequest); len(e.Detail) > 200 {
			t.Errorf("the refusal of %d bytes has %d", len(s), len(e.Detail))
		}
	}
}

// ParseBookmark returns a bookmark whose text is the same, or refuses the text with CodeInvalidRequest.
func FuzzParseBookmark(f *testing.F) {
	for _, s := range []string{"", "1f0c6a3e.7:41,0,12", "1f0c6a3e.7/2:12", "1f0c6a3e.7:", "1f0c6a3e.07:01", "1f0c6a3e.7/2:1,2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		m, err := seb.ParseBookmark(s)
		if err != nil {
			if seb.CodeOf(err) != seb.CodeInvalidRequest {
				t.Fatalf("%q: %v", s, err)
			}
			return
		}
		if len(m.Offsets) == 0 || len(m.Offsets) > seb.FollowPartitionsMax || m.Partition < seb.AllPartitions {
			t.Fatalf("%q is %+v", s, m)
		}
		if again, err := seb.ParseBookmark(m.String()); err != nil || !cmp.Equal(again, m) {
			t.Fatalf("%q is %v, and that is %v, %v", s, m, again, err)
		}
	})
}
