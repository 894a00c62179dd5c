package explore

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain lets garbage grow: an exploration makes much of it, and keeps little.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}
