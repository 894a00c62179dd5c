package main

import (
	"context"
	"io"
	"strings"
	"testing"
)

// An API key has no effect on a log without keys. The user may believe that the log is protected.
func TestKeyForALogWithoutKeysIsAcceptedAndTold(t *testing.T) {
	b := serve(t, nil, "--store", "memory:")
	t.Setenv("SEB_SERVER", b.url)
	t.Setenv("SEB_API_KEY", "seb_1_"+strings.Repeat("a", 64))
	const told = "warning: the log has no API keys: the key of this request was not checked, and requests without a key are accepted too\n"
	lines := strings.Repeat("line\n", 3)
	for _, args := range []string{"produce orders --batch-records 1", "consume orders", "topic list", "queue create orders mail", "topic trim orders --partition 0 --before 0"} {
		r := runSeb(t, strings.NewReader(lines), strings.Fields(args)...)
		r.want(t, exitOK)
		if strings.Count(r.err, told) != 1 {
			t.Errorf("seb %s says\n%s", args, r.err)
		}
	}
	runSeb(t, nil, "topic", "show", "nothing").want(t, exitRefused, told)

	// A stream says it when it begins.
	ctx, cancel := context.WithCancel(t.Context())
	stderr := newOutput()
	go func() {
		defer cancel()
		_, _ = stderr.lineAfter("warning: ", nil)
	}()
	_ = run(ctx, []string{"consume", "orders", "--follow"}, streams{strings.NewReader(""), io.Discard, stderr})
	if strings.Count(stderr.String(), told) != 1 {
		t.Errorf("consume --follow says\n%s", stderr)
	}

	t.Setenv("SEB_API_KEY", "")
	if r := runSeb(t, nil, "topic", "list"); strings.Contains(r.err, "warning") {
		t.Errorf("without a key it says\n%s", r.err)
	}
	ops := runSeb(t, nil, "key", "create", "ops", "--scope", "admin")
	ops.want(t, exitOK)
	t.Setenv("SEB_API_KEY", strings.TrimSpace(ops.out))
	if r := runSeb(t, nil, "topic", "list"); r.code != exitOK || strings.Contains(r.err, "warning") {
		t.Errorf("with a valid key: exit code %d, %s", r.code, r.err)
	}
}
