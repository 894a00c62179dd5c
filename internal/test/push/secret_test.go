package push_test

import (
	"strings"
	"testing"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/push"
	"github.com/simple-event-broker/seb/objstore"
)

// The log has a bound for all texts of a target. A target beyond that bound is refused: a commit that
// the log can't hold would stop the broker.
func TestTargetIsRefusedThatTheLogHasNoRoomFor(t *testing.T) {
	b := open(t, objstore.NewMemory(), immediate())
	q := queueOf(t, b, 0, 0)
	secrets := strings.Repeat(push.NewSecret()+" ", push.SecretsMax)
	url := "https://example.com/" + strings.Repeat("a", push.URLBytesMax-len("https://example.com/"))
	u := seb.PushUpdate{URL: &url, Secret: ptr(secrets + strings.Repeat(" ", 40_000)), Headers: map[string]string{"A": strings.Repeat("b", push.HeaderBytesMax-1)}}
	_, _, _, err := q.SetPush(t.Context(), u)
	wantCode(t, err, seb.CodeInvalidRequest)
	u.Secret = ptr(secrets + strings.Repeat(" ", push.SecretBytesMax-len(secrets)))
	if _, _, _, err := q.SetPush(t.Context(), u); err != nil {
		t.Fatal(err)
	}
}
