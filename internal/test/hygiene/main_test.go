package hygiene

import (
	"flag"
	"fmt"
	"testing"
)

// TestMain runs nothing in short tests, as with the race detector: there, reading the tree takes many
// times longer, and the detector has nothing to find.
func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		fmt.Println("the tree is looked at without -short")
		return
	}
	m.Run()
}
