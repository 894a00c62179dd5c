package fault_test

import (
	"os"
	"testing"

	"github.com/simple-event-broker/seb/internal/test/sim"
)

// Many of these tests write commits by hand, or say which objects a broker may delete.
func TestMain(m *testing.M) {
	sim.BelowSegments()
	os.Exit(m.Run())
}
