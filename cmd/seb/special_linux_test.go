package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// dump refuses special files and huge ones by name; it must not wait for the writer of a FIFO.
func TestSpecialFilesAndHugeOnesAreRefusedByName(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	runSeb(t, nil, "key", "create", "me", "--scope", "admin", "--store", store, "--new-log").want(t, 0)
	log := filepath.Join(store, "log")
	fifo, huge := filepath.Join(log, "00000000000000000005"), filepath.Join(store, "checkpoint", "00000000000000000009")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(huge), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(huge, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(huge, 100<<30); err != nil {
		t.Skip(err) // the file system has no room for a hole of that size
	}
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"dump", socket}, socket + " is not a regular file"},
		{[]string{"dump", fifo}, fifo + " is not a regular file"},
		{[]string{"dump", "--store", store, "log/" + filepath.Base(fifo)}, fifo + " is a FIFO"},
		{[]string{"dump", huge}, "107374182400 bytes"},
		{[]string{"dump", "--store", store, "checkpoint/" + filepath.Base(huge)}, "107374182400 bytes"},
		{[]string{"fsck", "--store", store}, fifo + " is a FIFO"},
	} {
		if r := runSeb(t, nil, test.args...); r.code != exitDamage || !strings.Contains(r.out+r.err, test.want) {
			t.Errorf("%v: %+v", test.args, r)
		}
	}
	if err := os.Remove(fifo); err != nil {
		t.Fatal(err)
	}
	if r := runSeb(t, nil, "fsck", "--store", store); r.code != exitDamage || !strings.Contains(r.out+r.err, "107374182400 bytes") {
		t.Errorf("fsck: %+v", r)
	}
}
