package hygiene

import (
	"flag"
	"fmt"
	"testing"
)

// TestMain runs nothing where tests are to be short, as they are with the race detector: that
// would read the tree many times more slowly, and has nothing to see there.
func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		fmt.Println("the tree is looked at without -short")
		return
	}
	m.Run()
}
