package explore

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain makes garbage collection rare: an exploration makes much garbage, and keeps little.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}
