package objstore

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// readAhead asks the kernel to begin to read n bytes at off, then yields to other goroutines, which may ask
// for bytes too. A goroutine that waits for the disk in a read keeps its GOMAXPROCS slot for most of that
// time. So without readAhead, the disk would have about as many reads under way as there are CPUs.
func readAhead(f *os.File, off, n int64) {
	conn, err := f.SyscallConn()
	if err != nil {
		return // f is closed: the read will return the error
	}
	_ = conn.Control(func(fd uintptr) {
		_ = unix.Fadvise(int(fd), off, n, unix.FADV_WILLNEED) // a hint, which the file system may not know
	})
	runtime.Gosched()
}
