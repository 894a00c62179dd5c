package fault_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
)

// Opening a FIFO would block until there is a writer.
func TestBrokerRefusesAFIFOInItsDirectory(t *testing.T) {
	for _, pattern := range []string{format.ClusterKey, format.CheckpointPrefix + "*", format.LogKey(3)} {
		t.Run(pattern, func(t *testing.T) {
			root := newDirectoryLog(t)
			file := filepath.Join(root, pattern)
			if pattern != format.LogKey(3) { // slot 3 is the next slot
				file = soleFile(t, root, pattern)
				if err := os.Remove(file); err != nil {
					t.Fatal(err)
				}
			}
			if err := syscall.Mkfifo(file, 0o600); err != nil {
				t.Fatal(err)
			}
			b, err := seb.Open(t.Context(), openDirStore(t, root), immediate())
			if err == nil {
				kill(t, b)
			}
			wantText(t, err, file+" is a FIFO")
		})
	}
}
