package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/httpapi"
	"github.com/simple-event-broker/seb/internal/original"
	"github.com/simple-event-broker/seb/internal/test/s3test"
	"github.com/simple-event-broker/seb/objstore"
)

// packed returns b as the original Seb compresses it.
func packed(b []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, err := z.Write(b)
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		panic(err) // a buffer takes everything
	}
	return out.Bytes()
}

// originalBytes is a file of two records, "first" and "\x00", of 2024-02-29
// 12:34:56.789012 UTC, as the original writes it.
var originalBytes = []byte{
	's', 'e', 'b', '!',
	1, 0,
	0x14, 0x66, 0xaa, 0x7c, 0x84, 0x12, 0x06, 0,
	2, 0, 0, 0,
	0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
	0, 0, 0, 0,
	5, 0, 0, 0,
	'f', 'i', 'r', 's', 't', 0,
}

// originals are the files of a source, by name.
type originals map[string][]byte

// manyOriginals returns a topic's files, and its records as Seb must store them: the golden file, then two
// hundred files of one to five records, every other one compressed.
func manyOriginals(topic string) (originals, []string) {
	const stamp = "2024-02-29T12:34:56.789Z"
	files := originals{
		original.Name(topic, 0):                 originalBytes,
		topic + "/offsets_000000000000.offsets": []byte("none of the import's business"),
	}
	want := []string{stamp + " first", stamp + " \x00"}
	for i := range 200 {
		at := time.Date(2024, 3, 1, 0, 0, i, i*1000, time.UTC)
		var values []string
		name := original.Name(topic, int64(len(want)))
		for range 1 + i%5 {
			values = append(values, strings.Repeat(fmt.Sprint(len(want)), i%3))
			want = append(want, at.Format(timestampLayout)+" "+values[len(values)-1])
		}
		files[name] = originalAt(at.UnixMicro(), values...)
		if i%2 == 0 {
			files[name] = packed(files[name])
		}
	}
	return files, want
}

// dir writes the files to a directory.
func (files originals) dir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, body := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, body, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// bucket writes the files to a bucket of a real S3 server.
func (files originals) bucket(t *testing.T) string {
	t.Helper()
	storeURL := s3test.VersityGW(t)
	store := s3test.Open(t, storeURL)
	for name, body := range files {
		if _, err := store.Create(t.Context(), name, body); err != nil {
			t.Fatal(err)
		}
	}
	for _, v := range s3test.Env() {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	return storeURL
}

// postHandler handles the nth append; serve carries out the append and answers it.
type postHandler func(n int64, w http.ResponseWriter, serve func(http.ResponseWriter))

// importTarget is a broker in this process behind an HTTP server on which a test can disturb appends.
type importTarget struct {
	broker *seb.Broker
	url    string
	posts  atomic.Int64
	onPost atomic.Pointer[postHandler]
}

func newImportTarget(t *testing.T) *importTarget {
	t.Helper()
	return importTargetOf(t, seb.Options{})
}

func importTargetOf(t *testing.T, opts seb.Options) *importTarget {
	t.Helper()
	opts.Batching = seb.Immediate()
	b, err := seb.Open(t.Context(), objstore.NewMemory(), opts)
	if err != nil {
		t.Fatal(err)
	}
	direct := httptest.NewServer(httpapi.New(b, httpapi.Options{}))
	upstream, err := url.Parse(direct.URL)
	if err != nil {
		t.Fatal(err)
	}
	target := &importTarget{broker: b}
	proxy := httputil.NewSingleHostReverseProxy(upstream)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if on := target.onPost.Load(); on != nil && r.Method == http.MethodPost {
			(*on)(target.posts.Add(1), w, func(w http.ResponseWriter) { proxy.ServeHTTP(w, r) })
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	target.url = front.URL
	t.Cleanup(func() {
		front.Close()
		direct.Close()
		if err := b.Close(); err != nil {
			t.Errorf("close broker: %v", err)
		}
	})
	return target
}

// disturb makes on handle every append from now on.
func (target *importTarget) disturb(on postHandler) { target.onPost.Store(&on) }

// stored returns partition 0 as lines of time and value.
func (target *importTarget) stored(t *testing.T, topic string) []string {
	t.Helper()
	lines := []string{}
	for r, err := range target.broker.Read(t.Context(), topic, 0, seb.Earliest) {
		if err != nil {
			t.Fatal(err)
		}
		if int(r.Offset) != len(lines) {
			t.Fatalf("offset %d comes after %d records", r.Offset, len(lines))
		}
		lines = append(lines, r.Timestamp.UTC().Format(timestampLayout)+" "+string(r.Value))
	}
	return lines
}

func (target *importTarget) run(ctx context.Context, t *testing.T, source string, args ...string) result {
	t.Helper()
	return runSebContext(ctx, t, nil, append([]string{"import", source, "--server", target.url}, args...)...)
}

func TestImportGivesBackEveryRecordAtItsOffset(t *testing.T) {
	files, want := manyOriginals("orders")
	for name, source := range map[string]func(*testing.T) string{"directory": files.dir, "versitygw": files.bucket} {
		t.Run(name, func(t *testing.T) {
			target, from := newImportTarget(t), source(t)
			dry := target.run(t.Context(), t, from, "--dry-run")
			if dry.want(t, exitOK); !strings.Contains(dry.out, fmt.Sprintf("%d records to import", len(want))) {
				t.Errorf("the dry run says %s", dry.out)
			}
			if topics, err := seb.Collect(target.broker.Topics(t.Context(), seb.ListOptions{})); err != nil || len(topics) != 0 {
				t.Fatalf("the dry run left %v, %v", topics, err)
			}
			for _, said := range []string{fmt.Sprintf("%d records imported", len(want)), "0 records imported"} {
				r := target.run(t.Context(), t, from)
				if r.want(t, exitOK); !strings.Contains(r.out, said) {
					t.Errorf("import says %s, want %q", r.out, said)
				}
				if diff := cmp.Diff(want, target.stored(t, "orders")); diff != "" {
					t.Fatalf("records (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// An import that is interrupted between any two requests, and run again, gives the same records.
func TestImportGoesOnWhereItWasInterrupted(t *testing.T) {
	files, want := manyOriginals("orders")
	from, target := files.dir(t), newImportTarget(t)
	interrupted := 0
	for {
		ctx, interrupt := context.WithCancel(t.Context())
		stopAt := target.posts.Load() + 3
		target.disturb(func(n int64, w http.ResponseWriter, serve func(http.ResponseWriter)) {
			if n == stopAt {
				interrupt() // while the request is under way
			}
			serve(w)
		})
		r := target.run(ctx, t, from, "--batch-bytes", "60")
		interrupt()
		if got := target.stored(t, "orders"); !slices.Equal(got, want[:len(got)]) {
			t.Fatalf("after %d interrupts:\n%s", interrupted, cmp.Diff(want[:len(got)], got))
		}
		if r.code == exitOK {
			break
		}
		r.want(t, exitSignal+2, "interrupted", "run the same import again to continue there")
		interrupted++
	}
	if got := target.stored(t, "orders"); len(got) != len(want) || interrupted < 3 {
		t.Errorf("%d of %d records after %d interrupts", len(got), len(want), interrupted)
	}
}

// An append without an answer is found in the topic, and not sent again. A refused append is sent again.
func TestImportFindsOutWhatBecameOfAppends(t *testing.T) {
	files, want := manyOriginals("orders")
	from, target := files.dir(t), newImportTarget(t)
	target.disturb(func(n int64, w http.ResponseWriter, serve func(http.ResponseWriter)) {
		switch n {
		case 2:
			serve(httptest.NewRecorder())
			panic(http.ErrAbortHandler)
		case 4:
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"status":503,"code":"store_unavailable","detail":"not now","outcome":"not_committed"}`)
		default:
			serve(w)
		}
	})
	target.run(t.Context(), t, from, "--batch-bytes", "500").want(t, exitOK)
	if diff := cmp.Diff(want, target.stored(t, "orders")); diff != "" || target.posts.Load() < 5 {
		t.Errorf("records after %d appends (-want +got):\n%s", target.posts.Load(), diff)
	}
}

// Import gives up appends that never arrive, and the next run sends them.
func TestImportGivesUpAppendsThatNeverArrive(t *testing.T) {
	files, want := manyOriginals("orders")
	from, target := files.dir(t), newImportTarget(t)
	target.disturb(func(n int64, w http.ResponseWriter, serve func(http.ResponseWriter)) {
		if n >= 3 {
			panic(http.ErrAbortHandler)
		}
		serve(w)
	})
	r := target.run(t.Context(), t, from, "--batch-bytes", "500", "--retry-for", "300ms")
	r.want(t, exitUnknown, "no response from", "run the same import again to continue there")
	if n := target.posts.Load(); n < 4 {
		t.Errorf("%d appends were sent", n)
	}
	target.onPost.Store(nil)
	target.run(t.Context(), t, from).want(t, exitOK)
	if diff := cmp.Diff(want, target.stored(t, "orders")); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}

// A smaller request of an earlier run arrives during this run, and ends it. The next run continues after
// that request's records.
func TestImportContinuesAfterALateRequestOfItsOwn(t *testing.T) {
	files, want := manyOriginals("orders")
	from, target := files.dir(t), newImportTarget(t)
	target.disturb(func(n int64, w http.ResponseWriter, serve func(http.ResponseWriter)) {
		if n == 1 {
			late := []seb.Record{{Value: []byte("first"), Timestamp: time.UnixMicro(1709210096789012)}}
			if _, err := target.broker.Append(context.Background(), "orders", late); err != nil {
				t.Error(err)
			}
		}
		serve(w)
	})
	target.run(t.Context(), t, from).want(t, exitFailure, "a delayed request of an earlier import has appended a part of the batch", "run the same import again to continue there")
	target.run(t.Context(), t, from).want(t, exitOK)
	if diff := cmp.Diff(want, target.stored(t, "orders")); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}

func TestImportStopsWhenOthersAppend(t *testing.T) {
	files, _ := manyOriginals("orders")
	from := files.dir(t)
	for name, when := range map[string]func(intrude func(), serve func()){
		"before": func(intrude, serve func()) { intrude(); serve() },
		"after":  func(intrude, serve func()) { serve(); intrude() },
	} {
		t.Run(name, func(t *testing.T) {
			target := newImportTarget(t)
			target.disturb(func(n int64, w http.ResponseWriter, serve func(http.ResponseWriter)) {
				intrude := func() {
					if _, err := target.broker.Append(context.Background(), "orders", []seb.Record{{Value: []byte("x")}}); err != nil {
						t.Error(err)
					}
				}
				if n != 2 {
					intrude = func() {}
				}
				when(intrude, func() { serve(w) })
			})
			r := target.run(t.Context(), t, from, "--batch-bytes", "500")
			r.want(t, exitRefused, "another program appended", "delete the topic")
			if n := target.posts.Load(); n > 3 {
				t.Errorf("%d appends were sent", n)
			}
		})
	}
}

// Import refuses a topic whose records differ from those of the source.
func TestImportRefusesATopicWithOtherRecords(t *testing.T) {
	files, _ := manyOriginals("orders")
	from := files.dir(t)
	micros := time.UnixMicro(1709210096789012)
	for name, records := range map[string][]seb.Record{
		"another value": {{Value: []byte("first"), Timestamp: micros}, {Value: []byte("second"), Timestamp: micros}},
		"longer value":  {{Value: []byte("first"), Timestamp: micros}, {Value: []byte("\x00\x00"), Timestamp: micros}},
		"another time":  {{Value: []byte("first"), Timestamp: micros}, {Value: []byte{0}, Timestamp: micros.Add(time.Millisecond)}},
		"too many":      slices.Repeat([]seb.Record{{Value: []byte("x")}}, 10_000),
	} {
		t.Run(name, func(t *testing.T) {
			target := newImportTarget(t)
			if _, err := target.broker.Append(t.Context(), "orders", records); err != nil {
				t.Fatal(err)
			}
			target.run(t.Context(), t, from).want(t, exitRefused, "holds records that no import appended", "differs from that of")
			if got := target.stored(t, "orders"); len(got) != len(records) {
				t.Errorf("the topic has %d records, had %d", len(got), len(records))
			}
		})
	}
}

func TestImportRefusesWhatIsNotWhole(t *testing.T) {
	name := func(offset int64) string { return original.Name("orders", offset) }
	two := originalOf("a", "b")
	for test, c := range map[string]struct {
		files originals
		says  []string
	}{
		"not from 0":         {originals{name(2): two}, []string{name(2), "--renumber"}},
		"a gap":              {originals{name(0): two, name(3): two}, []string{"a gap", name(0), name(3)}},
		"an overlap":         {originals{name(0): two, name(1): two}, []string{"an overlap", name(0), name(1)}},
		"cut off":            {originals{name(0): two, name(2): two[:39]}, []string{name(2), "damaged"}},
		"cut off gzip":       {originals{name(0): packed(two)[:30]}, []string{name(0), "damaged"}},
		"another version":    {originals{name(0): append([]byte("seb!\x02\x00"), two[6:]...)}, []string{name(0), "version 2"}},
		"another magic":      {originals{name(0): append([]byte("SEB!"), two[4:]...)}, []string{name(0), "begins with"}},
		"empty file":         {originals{name(0): {}}, []string{name(0), "0 bytes"}},
		"unusable file name": {originals{"orders/0.record_batch": two}, []string{"orders/0.record_batch", "12 digits"}},
		"unusable topic":     {originals{"or ders/000000000000.record_batch": two}, []string{"or ders", "--topic"}},
	} {
		t.Run(test, func(t *testing.T) {
			target := newImportTarget(t)
			from := c.files.dir(t)
			target.run(t.Context(), t, from, "--dry-run").want(t, exitFailure, c.says...)
			target.run(t.Context(), t, from).want(t, exitFailure, c.says...)
			if topics, err := seb.Collect(target.broker.Topics(t.Context(), seb.ListOptions{})); err != nil || len(topics) > 1 || len(topics) == 1 && topics[0].Partitions[0].End != 0 {
				t.Errorf("topics are %+v, %v", topics, err)
			}
		})
	}
}

func TestImportOfNothingIsRefused(t *testing.T) {
	target := newImportTarget(t)
	from := originals{"seb.json": []byte("{}")}.dir(t)
	target.run(t.Context(), t, from).want(t, exitRefused, "no files named TOPIC/OFFSET.record_batch", "name the directory")
	target.run(t.Context(), t, from, "--topic", "orders").want(t, exitRefused, "no files of this topic (the first would be orders/")
}

func TestImportRenumbers(t *testing.T) {
	target := newImportTarget(t)
	from := originals{original.Name("orders", 40): originalOf("a", "b"), original.Name("orders", 42): originalOf("c")}.dir(t)
	for range 2 {
		target.run(t.Context(), t, from, "--renumber").want(t, exitOK)
		const epoch = "1970-01-01T00:00:00.000Z"
		if got, want := target.stored(t, "orders"), []string{epoch + " a", epoch + " b", epoch + " c"}; !cmp.Equal(got, want) {
			t.Errorf("stored %q, want %q", got, want)
		}
	}
}

func TestImportCreatesTopicsWhereAppendsDoNot(t *testing.T) {
	target := importTargetOf(t, seb.Options{NoAutoCreate: true})
	from := originals{original.Name("orders", 0): originalOf("a", "b"), original.Name("clicks", 0): originalOf("c")}.dir(t)
	target.run(t.Context(), t, from).want(t, exitOK)
	if n := len(target.stored(t, "orders")) + len(target.stored(t, "clicks")); n != 3 {
		t.Errorf("%d records came over", n)
	}
}

func TestImportDoesNotFollowSymbolicLinks(t *testing.T) {
	target := newImportTarget(t)
	from := originals{original.Name("orders", 0): originalOf("a")}.dir(t)
	if err := os.Symlink("orders", filepath.Join(from, "clicks")); err != nil {
		t.Skipf("needs symbolic links: %v", err)
	}
	target.run(t.Context(), t, from).want(t, exitFailure, "clicks is a symbolic link")
}

// An import is complete although another program appended to the topic later.
func TestImportLeavesLaterRecordsAlone(t *testing.T) {
	target := newImportTarget(t)
	from := originals{original.Name("orders", 0): originalOf("a", "b")}.dir(t)
	target.run(t.Context(), t, from).want(t, exitOK)
	if _, err := target.broker.Append(t.Context(), "orders", []seb.Record{{Value: []byte("new")}}); err != nil {
		t.Fatal(err)
	}
	r := target.run(t.Context(), t, from)
	if r.want(t, exitOK); r.out != "orders: 0 records imported, 0 B, from 1 file; 2 were there before, and 1 later ones; the next offset is 3\n" {
		t.Errorf("import says %s", r.out)
	}
}
