package fault_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// dirLog returns a directory with a log of 6 records, and a broker on it that started from a
// checkpoint, so that it has none of the records in memory.
func dirLog(t *testing.T) (string, *seb.Broker) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "bucket")
	b := openOnly(t, openDir(t, dir), seb.Options{Batching: seb.Immediate()})
	mustCreateTopic(t, b, "t", 1) // slot 1; "v0" is in slot 2
	for _, v := range numbered("v", 6) {
		mustAppend(t, b, "t", v)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b = openOnly(t, openDir(t, dir), seb.Options{Batching: seb.Immediate()})
	t.Cleanup(func() { _ = b.Close() }) // a stopped broker has nothing to save
	return dir, b
}

// copyDir copies a directory to a path that does not exist.
func copyDir(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// Files are changed under a running broker. It serves only what was appended, and fails with data_lost
// for the rest, before and after a restart.
func TestFilesChangedUnderARunningBroker(t *testing.T) {
	hands := map[string]func(t *testing.T, path string){
		"removed": func(t *testing.T, path string) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		},
		"swapped with its neighbour": func(t *testing.T, path string) {
			other := filepath.Join(filepath.Dir(path), filepath.Base(format.LogKey(5)))
			for _, move := range [][2]string{{path, path + ".tmp"}, {other, path}, {path + ".tmp", other}} {
				if err := os.Rename(move[0], move[1]); err != nil {
					t.Fatal(err)
				}
			}
		},
	}
	for _, d := range storetest.Damages() {
		bend := func(t *testing.T, path string) []byte {
			was, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			last := len(was) - 8 // within its record: the head is not read again
			return append(was[:last:last], d.Bend(newRand(3), was[last:])...)
		}
		hands[d.Name+" in place"] = func(t *testing.T, path string) {
			if err := os.WriteFile(path, bend(t, path), 0); err != nil {
				t.Fatal(err)
			}
		}
		hands[d.Name+" and replaced"] = func(t *testing.T, path string) {
			if err := os.WriteFile(path+".new", bend(t, path), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(path+".new", path); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, hand := range hands {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of the time is spent waiting between tries of a read
			dir, b := dirLog(t)
			hand(t, filepath.Join(dir, format.LogKey(4)))
			for _, b := range []*seb.Broker{b, open(t, openDir(t, dir), seb.Options{})} {
				got, err := readTo(t, b, "t")
				wantCode(t, err, seb.CodeDataLost)
				wantText(t, err, format.LogKey(4), "restore")
				if len(got) != 2 || got[0] != "v0" || got[1] != "v1" {
					t.Errorf("it served %q, want what stands before the damage", got)
				}
			}
			if at := mustAppend(t, b, "t", "v6"); at != 6 {
				t.Errorf("it goes on at %d", at)
			}
		})
	}
}

// readTo returns what can be read of a topic, and the error that ended it.
func readTo(t *testing.T, b *seb.Broker, topic string) (got []string, err error) {
	t.Helper()
	for r, err := range b.Read(t.Context(), topic, 0, seb.Earliest) {
		if err != nil {
			return got, err
		}
		got = append(got, string(r.Value))
	}
	return got, nil
}

// A backup is copied over the directory while a broker runs, and newer files are removed, as rsync
// --delete does. The broker's next commit is above the gap. The broker can't see that, but no broker
// accepts the remaining files as a whole log.
func TestDirectoryRestoredInPlaceIsRefused(t *testing.T) {
	dir, b := dirLog(t)
	for _, v := range numbered("w", 3) {
		mustAppend(t, b, "t", v)
	}
	for s := format.Seq(8); s <= 10; s++ { // slots that the backup lacks
		if err := os.Remove(filepath.Join(dir, format.LogKey(s))); err != nil {
			t.Fatal(err)
		}
	}
	mustAppend(t, b, "t", "above the gap")
	_, err := seb.Open(t.Context(), openDir(t, dir), seb.Options{})
	wantCode(t, err, seb.CodeBrokerStopped)
	wantText(t, err, "slot 8 is missing", "slot 11", "restore")
}

// The directory is moved away, and an older copy is put in its place. A store that followed the moved
// directory would acknowledge records that are not under the path.
func TestDirectoryMovedAwayStopsTheBroker(t *testing.T) {
	for _, replaced := range []bool{true, false} {
		dir, b := dirLog(t)
		backup := filepath.Join(t.TempDir(), "backup")
		copyDir(t, dir, backup)
		mustAppend(t, b, "t", "newer")
		if err := os.Rename(dir, dir+".old"); err != nil {
			t.Fatal(err)
		}
		if replaced {
			copyDir(t, backup, dir)
		}
		_, err := b.Append(t.Context(), "t", values("to nowhere"))
		wantOutcome(t, err, seb.Unknown)
		<-b.Stopped()
		wantCode(t, b.Status().Err, seb.CodeBrokerStopped)
		wantText(t, b.Status().Err, dir, "moved", "start again")
	}
}
