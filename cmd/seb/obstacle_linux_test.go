package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

// obstacles put something that is not a regular file at a free path. saved is the object that was there, or
// another one.
var obstacles = map[string]func(path, saved string) error{
	"directory":     func(path, _ string) error { return os.MkdirAll(filepath.Join(path, "inner"), 0o700) },
	"FIFO":          func(path, _ string) error { return syscall.Mkfifo(path, 0o600) },
	"dangling link": func(path, _ string) error { return os.Symlink("nowhere", path) },
	"link to an object": func(path, saved string) error {
		target, err := filepath.Rel(filepath.Dir(path), saved)
		if err != nil {
			return err
		}
		return os.Symlink(target, path)
	},
}

// obstructed are the places for obstacles: the keys of objects in the log, and of the next slot.
var obstructed = map[string]func(t *testing.T, root string) (key string){
	"seb.json":          func(*testing.T, string) string { return clusterKey },
	"next slot":         func(t *testing.T, root string) string { return slotAfter(keysIn(t, root, "log")) },
	"last slot":         func(t *testing.T, root string) string { return last(keysIn(t, root, "log")) },
	"middle slot":       func(t *testing.T, root string) string { return keysIn(t, root, "log")[2] },
	"newest checkpoint": func(t *testing.T, root string) string { return last(keysIn(t, root, "checkpoint")) },
	"data object":       func(t *testing.T, root string) string { return last(keysIn(t, root, "data")) },
}

func last(keys []string) string { return keys[len(keys)-1] }

func slotAfter(keys []string) string {
	return fmt.Sprintf("log/%020d", len(keys)+1)
}

func keysIn(t *testing.T, root, dir string) (keys []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(root, dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		keys = append(keys, dir+"/"+e.Name())
	}
	slices.Sort(keys)
	return keys
}

// obstructedRecords are the records of the log for obstacles: small ones in commits, and one in a data
// object.
func obstructedRecords() [][]byte {
	return [][]byte{[]byte("a"), []byte("b"), []byte("c"), bytes.Repeat([]byte("large"), 1<<20), []byte("d"), []byte("e")}
}

// newObstructedLog makes a log whose newest checkpoint does not cover its last slot.
func newObstructedLog(t *testing.T) (root string) {
	t.Helper()
	root = t.TempDir()
	for i, most := range []int{4, 2} {
		b := openObstructed(t, root)
		for _, value := range obstructedRecords()[4*i : 4*i+most] {
			if _, err := b.Append(t.Context(), "t", []seb.Record{{Value: value}}); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(root, last(keysIn(t, root, "checkpoint")))); err != nil {
		t.Fatal(err)
	}
	return root
}

func openObstructed(t *testing.T, root string) *seb.Broker {
	t.Helper()
	b, err := tryOpenObstructed(t, root)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func tryOpenObstructed(t *testing.T, root string) (*seb.Broker, error) {
	t.Helper()
	store, err := objstore.OpenDir(root)
	if err != nil {
		return nil, err
	}
	return seb.Open(t.Context(), store, seb.Options{Batching: seb.Immediate(), CheckpointCommits: 1024})
}

// obstruct puts an obstacle into a log, and returns the function that removes it.
func obstruct(t *testing.T, root, key string, put func(path, saved string) error) (remove func()) {
	t.Helper()
	path, saved := filepath.Join(root, key), filepath.Join(root, "saved")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := os.Lstat(path)
	stood := err == nil
	if stood {
		must(os.Rename(path, saved))
	} else {
		must(os.Link(filepath.Join(root, last(keysIn(t, root, "log"))), saved))
	}
	must(put(path, saved))
	return func() {
		must(os.RemoveAll(path))
		if stood {
			must(os.Rename(saved, path))
		} else {
			must(os.Remove(saved))
		}
	}
}

// useObstructed appends a record, reads all, and closes the broker. It returns an error unless all of that succeeds.
func useObstructed(ctx context.Context, b *seb.Broker) (err error) {
	defer func() { err = errors.Join(err, b.Close()) }()
	if _, err := b.Append(ctx, "t", []seb.Record{{Value: []byte("more")}}); err != nil {
		return err
	}
	var got [][]byte
	for r, err := range b.Read(ctx, "t", 0, seb.Earliest) {
		if err != nil {
			return err
		}
		got = append(got, r.Value)
	}
	if want := obstructedRecords(); len(got) <= len(want) || !slices.EqualFunc(got[:len(want)], want, bytes.Equal) {
		return fmt.Errorf("read %d records, not the %d that were appended and more", len(got), len(want))
	}
	return nil
}

// Something that is not an object of the log is always reported. Brokers must not repeat "the store did not
// take a commit" for ever, and fsck must not call the log whole.
func TestWhatIsNoObjectIsNeverPassedOver(t *testing.T) {
	for place, find := range obstructed {
		for kind, put := range obstacles {
			t.Run(place+"/"+kind, func(t *testing.T) {
				t.Parallel()
				root := newObstructedLog(t)
				key := find(t, root)
				path := filepath.Join(root, key)
				message := path + " is a"
				tools := func() {
					t.Helper()
					for _, args := range [][]string{{"fsck"}, {"fsck", "--deep"}, {"doctor", "--rounds", "1", "--samples", "1"}, {"dump", key}} {
						r := runSeb(t, nil, append(args, "--store", root)...)
						if said := r.out + r.err; r.code == 0 || !strings.Contains(said, message) || args[0] != "dump" && (r.code != exitDamage || !strings.Contains(said, "move it away")) {
							t.Errorf("%v: %+v", args, r)
						}
					}
				}
				use := func(what string, fine bool, open func() (*seb.Broker, error)) {
					t.Helper()
					ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
					defer cancel()
					b, err := open()
					if err == nil {
						err = useObstructed(ctx, b)
					}
					if fine != (err == nil) || err != nil && !strings.Contains(err.Error(), message) {
						t.Errorf("%s: %v", what, err)
					}
				}
				remove := obstruct(t, root, key, put)
				tools()
				// A List does not show the directory, and the broker starts from the checkpoint before it.
				use("start", place == "newest checkpoint" && kind == "directory", func() (*seb.Broker, error) { return tryOpenObstructed(t, root) })
				remove()

				running := openObstructed(t, root)
				key = find(t, root)
				path = filepath.Join(root, key)
				message = path + " is a"
				obstruct(t, root, key, put)
				// The running broker has read this object, and does not need it again.
				use("running", place == "seb.json" || place == "newest checkpoint", func() (*seb.Broker, error) { return running, nil })
				tools()
			})
		}
	}
}

// Only a start with another cache directory or mode can succeed, so the exit code must not be one after
// which a supervisor restarts; the message names once what was being opened.
func TestServeRefusesAnUnsafeCacheDirectoryAsWrongUsage(t *testing.T) {
	dir, store := t.TempDir(), filepath.Join(t.TempDir(), "store")
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	r := runSeb(t, nil, "serve", "--store", store, "--http", "127.0.0.1:0", "--cache-dir", dir)
	r.want(t, exitUsage, "seb: --cache-dir: the cache directory is not safe: the mode of "+dir+" is 0777", "chmod it to 0700", "do not change the mode of a directory that others use")
	if strings.Count(r.err, "open") > 1 {
		t.Errorf("it says: %s", r.err)
	}
	if _, err := os.Stat(filepath.Join(store, clusterKey)); err == nil {
		t.Error("a log was set up")
	}
}

// Only another flag can help against a store or a cache directory that can never be used.
func TestServeRefusesWhatCanNeverBeUsed(t *testing.T) {
	dir := t.TempDir()
	file, fifo := filepath.Join(dir, "file"), filepath.Join(dir, "fifo")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), syscall.Mkfifo(fifo, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		args []string
		want string
	}{
		{[]string{"--store", "memory:", "--cache-dir", file}, file + " is not a directory"},
		{[]string{"--store", "memory:", "--cache-dir", fifo}, fifo + " is not a directory"},
		{[]string{"--store", ""}, "--store is empty"},
		{[]string{"--store", "memory:", "--memory", "1MiB"}, "--memory is 1 MiB; it must be at least 8 MiB"},
		{[]string{"--store", "memory:", "--checkpoint-commits", "5000"}, "--checkpoint-commits: "},
		{[]string{"--store", "memory:", "--request-bytes-max", "1GiB"}, "--request-bytes-max: "},
		{[]string{"--store", "memory:", "--record-bytes-max", "64MiB"}, "--record-bytes-max: "},
		{[]string{"--store", "memory:", "--headers-max", "40000"}, "--headers-max: "},
		{[]string{"--store", "memory:", "--partitions-max", "9999999"}, "--partitions-max: "},
		{[]string{"--store", "memory:", "--delayed-max", "999999999"}, "--delayed-max: "},
		{[]string{"--store", "memory:", "--keys-max", "20000"}, "--keys-max: "},
		{[]string{"--store", "memory:", "--consumers-max", "9999999"}, "--consumers-max: "},
		{[]string{"--store", "memory:", "--queues-max", "100000"}, "--queues-max: "},
		{[]string{"--store", "memory:", "--margin", "1s"}, "--margin: "},
		{[]string{"--store", "memory:", "--delete-delay", "1h"}, "--delete-delay is 1h0m0s; it must be at least 4h0m0s"},
		{[]string{"--store", "memory:x"}, "use memory:, s3://BUCKET/PREFIX or a directory"},
		{[]string{"--store", "s3//bucket"}, "use memory:, s3://BUCKET/PREFIX or a directory"},
		{[]string{"--store", "s3://bk"}, `no bucket can have the name "bk"`},
		{[]string{"--store", "s3://bucket:99/x"}, `no bucket can have the name "bucket:99"`},
		{[]string{"--store", "s3://bucket?region=eu west"}, `no region can have the name "eu west"`},
		{[]string{"--store", "s3://bucket?endpoint=http://127.0.0.1:99999"}, "endpoint has the port 99999"},
		{[]string{"--store", "memory:", "--linger", "30s"}, "--linger is 30s; it must be less than --append-timeout (30s)"},
		{[]string{"--store", "memory:", "--append-timeout", "5ms"}, "--linger is 10ms; it must be less than --append-timeout (5ms)"},
	} {
		runSeb(t, nil, append([]string{"serve", "--http", "127.0.0.1:0"}, x.args...)...).want(t, exitUsage, x.want)
	}
}

// If something else stands where a directory of the log belongs, fsck and doctor name it, instead of
// reporting the objects below it as missing.
func TestFsckAndDoctorNameWhatIsNoDirectory(t *testing.T) {
	for kind, put := range map[string]func(path string) error{
		"file": func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"FIFO": func(path string) error { return syscall.Mkfifo(path, 0o600) },
	} {
		root := newObstructedLog(t)
		path := filepath.Join(root, "data")
		if err := errors.Join(os.RemoveAll(path), put(path)); err != nil {
			t.Fatal(err)
		}
		for _, command := range []string{"fsck", "doctor"} {
			if r := runSeb(t, nil, command, "--store", root); r.code != exitDamage || !strings.Contains(r.out, path+" is a "+kind+", and must be a directory: move it away") {
				t.Errorf("%s: %+v", command, r)
			}
		}
	}
}

// To open a FIFO would wait for ever, so the commands ask first what stands at the path.
func TestCommandsRefuseAStoreThatIsAFIFO(t *testing.T) {
	dir := t.TempDir()
	fifo, link := filepath.Join(dir, "fifo"), filepath.Join(dir, "link")
	if err := errors.Join(syscall.Mkfifo(fifo, 0o600), os.Symlink(fifo, link)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, link} {
		for _, command := range [][]string{{"fsck"}, {"fsck", "--deep"}, {"dump", "seb.json"}, {"key", "list"}, {"doctor"}, {"serve", "--http", "127.0.0.1:0"}} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			r := runSebContext(ctx, t, nil, append(command, "--store", path)...)
			if cancel(); r.code == 0 || !strings.Contains(r.err, "it is a FIFO: name a directory") {
				t.Errorf("%v --store %s: %+v", command, path, r)
			}
		}
	}
}

// A directory store always answers: what stands in the way of the probes is no reason to try again later.
func TestDoctorNamesWhatStandsInTheWayOfItsProbes(t *testing.T) {
	for kind, put := range map[string]func(path string) error{
		"a file":          func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"a FIFO":          func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a symbolic link": func(path string) error { return os.Symlink("data", path) },
	} {
		root := newObstructedLog(t)
		path := filepath.Join(root, "probe")
		if err := errors.Join(os.RemoveAll(path), put(path)); err != nil {
			t.Fatal(err)
		}
		r := runSeb(t, nil, "doctor", "--store", root)
		r.want(t, exitDamage, path+" is "+kind+", and must be a directory: move it away")
	}
}

// A start must fail if a file stands where the directory log belongs: the broker would find no records.
func TestServeRefusesWhatIsNoDirectory(t *testing.T) {
	for _, name := range []string{"log", "checkpoint", "data", ".tmp"} {
		for kind, put := range map[string]func(path, moved string) error{
			"a file":                             func(path, _ string) error { return os.WriteFile(path, nil, 0o600) },
			"a FIFO":                             func(path, _ string) error { return syscall.Mkfifo(path, 0o600) },
			"a symbolic link outside":            func(path, moved string) error { return os.Symlink(moved, path) },
			"a symbolic link inside":             func(path, _ string) error { return os.Symlink("probe", path) },
			"a symbolic link that leads nowhere": func(path, _ string) error { return os.Symlink("nowhere", path) },
		} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				root, moved := newObstructedLog(t), filepath.Join(t.TempDir(), "moved")
				path := filepath.Join(root, name)
				if err := errors.Join(os.Rename(path, moved), put(path, moved)); err != nil {
					t.Fatal(err)
				}
				kindOf, _, _ := strings.Cut(kind, " link")
				message := path + " is " + kindOf
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				r := runSebContext(ctx, t, nil, "serve", "--store", root, "--http", "127.0.0.1:0")
				r.want(t, exitDamage, message, "must be a directory")
				if name == ".tmp" {
					r.want(t, exitDamage, "move it away")
				} else {
					r.want(t, exitDamage, "mount --bind")
				}
				for _, command := range []string{"fsck", "doctor"} {
					if r := runSeb(t, nil, command, "--store", root); r.code != exitDamage || !strings.Contains(r.out+r.err, message) {
						t.Errorf("%s: %+v", command, r)
					}
				}
				if err := errors.Join(os.Remove(path), os.Rename(moved, path)); err != nil {
					t.Fatal(err)
				}
				if err := useObstructed(t.Context(), openObstructed(t, root)); err != nil {
					t.Errorf("after it was put right: %v", err)
				}
			})
		}
	}
}

// A broker stops, instead of repeating uploads for ever, if data is a link that leads out of the store.
func TestBrokerStopsWhereDataIsNoDirectory(t *testing.T) {
	root := newObstructedLog(t)
	b := openObstructed(t, root)
	path := filepath.Join(root, "data")
	if err := errors.Join(os.Rename(path, path+".moved"), os.Symlink(t.TempDir(), path)); err != nil {
		t.Fatal(err)
	}
	_, err := b.Append(t.Context(), "t", []seb.Record{{Value: bytes.Repeat([]byte("large"), 1<<20)}})
	if err == nil || !strings.Contains(err.Error(), path+" is a symbolic link, and must be a directory") {
		t.Errorf("a large append: %v", err)
	}
	if _, err := b.Append(t.Context(), "t", []seb.Record{{Value: []byte("small")}}); seb.CodeOf(err) != seb.CodeBrokerStopped {
		t.Errorf("a small append after that: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
