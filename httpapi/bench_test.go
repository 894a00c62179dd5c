package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

// The load of all benchmarks of appends: each of 16 callers posts batches of 1,024 records of
// 1 KiB, one after another.
const (
	benchCallers = 16
	benchRecords = 1024
	benchBytes   = benchRecords * 1024
)

func benchBody() []byte {
	return batchBody(slices.Repeat([]string{strings.Repeat("x", 1024)}, benchRecords)...)
}

// target is a server under load.
type target struct {
	url  string
	stop func()
}

// startBroker serves a broker on a directory, which fsyncs every commit.
func startBroker(b *testing.B) target {
	b.Helper()
	dir := b.TempDir()
	store, err := objstore.OpenDir(dir)
	if err != nil {
		b.Fatal(err)
	}
	broker, err := seb.Open(context.Background(), store, seb.Options{Batching: seb.Immediate()})
	if err != nil {
		b.Fatal(err)
	}
	url, stop := startServer(b, NewServer(New(broker, Options{}), nil))
	return target{url + "/v1/topics/bench/records", func() {
		stop()
		if err := broker.Close(); err != nil {
			b.Error(err)
		}
		removeAll(b, dir)
	}}
}

// startPipe serves a handler that does only what makes a body durable: read the body, compute its
// checksum, write and fsync a file, link it to its name, fsync the directory. It has no log and no order.
func startPipe(b *testing.B) target {
	b.Helper()
	dir := b.TempDir()
	p, err := newPipe(dir)
	if err != nil {
		b.Fatal(err)
	}
	url, stop := startServer(b, &http.Server{Handler: p})
	return target{url, func() {
		stop()
		if err := p.dir.Close(); err != nil {
			b.Error(err)
		}
		removeAll(b, dir)
	}}
}

func startServer(b *testing.B, srv *http.Server) (url string, stop func()) {
	b.Helper()
	l, err := new(net.ListenConfig).Listen(b.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			b.Errorf("serve: %v", err)
		}
	}()
	return "http://" + l.Addr().String(), func() {
		if err := srv.Shutdown(context.Background()); err != nil {
			b.Error(err)
		}
		<-served
	}
}

func removeAll(b *testing.B, dir string) {
	if err := os.RemoveAll(dir); err != nil {
		b.Error(err)
	}
}

type pipe struct {
	path    string
	dir     *os.File
	next    atomic.Int64
	buffers sync.Pool
}

func newPipe(path string) (*pipe, error) {
	dir, err := os.Open(path)
	return &pipe{path: path, dir: dir, buffers: sync.Pool{New: func() any { return new([]byte) }}}, err
}

func (p *pipe) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	buf := p.buffers.Get().(*[]byte)
	defer p.buffers.Put(buf)
	*buf = slices.Grow((*buf)[:0], int(r.ContentLength))[:r.ContentLength]
	if _, err := io.ReadFull(r.Body, *buf); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	crc := crc32.Checksum(*buf, crc32.MakeTable(crc32.Castagnoli))
	if err := p.store(*buf); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Crc", fmt.Sprint(crc))
	w.WriteHeader(http.StatusCreated)
}

func (p *pipe) store(body []byte) (err error) {
	name := filepath.Join(p.path, fmt.Sprint(p.next.Add(1)))
	f, err := os.Create(name + ".tmp")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Write(body); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Link(name+".tmp", name); err != nil {
		return err
	}
	if err := os.Remove(name + ".tmp"); err != nil {
		return err
	}
	return p.dir.Sync()
}

// load posts body n times to url, and returns how long that took.
func load(b *testing.B, url string, body []byte, n int) time.Duration {
	b.Helper()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: benchCallers, WriteBufferSize: 64 << 10}}
	defer client.CloseIdleConnections()
	var left atomic.Int64
	left.Store(int64(n))
	start := time.Now()
	var wg sync.WaitGroup
	for range benchCallers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := post(client, url, body); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(start)
}

func post(client *http.Client, url string, body []byte) error {
	req, err := http.NewRequestWithContext(context.Background(), "POST", url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", typeBatch)
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusCreated {
		err = fmt.Errorf("status %d: %s", resp.StatusCode, answer)
	}
	return err
}

// benchmarkTarget measures t. The allocations are those of client and server together.
func benchmarkTarget(b *testing.B, t target) {
	body := benchBody()
	load(b, t.url, body, benchCallers) // opens connections and fills pools
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	b.ResetTimer()
	took := load(b, t.url, body, b.N)
	b.StopTimer()
	runtime.ReadMemStats(&after)
	records := float64(b.N) * benchRecords
	b.ReportMetric(records/took.Seconds(), "records/s")
	b.ReportMetric(float64(b.N)*benchBytes/1e6/took.Seconds(), "MB/s")
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/records, "allocs/record")
	t.stop()
}

func BenchmarkHTTPBatch(b *testing.B) { benchmarkTarget(b, startBroker(b)) }
func BenchmarkBarePipe(b *testing.B)  { benchmarkTarget(b, startPipe(b)) }

// BenchmarkHTTPBatchVsPipe loads the broker and the bare pipe in turn, and
// reports the median of the rounds' ratios, since the speed of disks and of shared machines
// changes from one minute to the next.
func BenchmarkHTTPBatchVsPipe(b *testing.B) {
	const rounds, requests = 7, 300
	body := benchBody()
	measure := func(t target) float64 {
		load(b, t.url, body, 2*benchCallers)
		took := load(b, t.url, body, requests)
		t.stop()
		return requests * benchRecords / took.Seconds()
	}
	var ratios, brokers, pipes []float64
	for range b.N * rounds {
		broker, pipe := measure(startBroker(b)), measure(startPipe(b))
		brokers, pipes, ratios = append(brokers, broker), append(pipes, pipe), append(ratios, broker/pipe)
	}
	b.ReportMetric(median(ratios), "ratio")
	b.ReportMetric(slices.Min(ratios), "ratio-min")
	b.ReportMetric(median(brokers), "seb-records/s")
	b.ReportMetric(median(pipes), "pipe-records/s")
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// BenchmarkRead reads 1 MiB answers of 1 KiB text records, in each form.
func BenchmarkRead(b *testing.B) {
	s := newServer(b, seb.Options{}, Options{})
	s.append("bench", string(benchBody()), "Content-Type", typeBatch)
	client := s.client
	for _, mediaType := range answers {
		b.Run(mediaType[strings.IndexByte(mediaType, '/')+1:], func(b *testing.B) {
			b.SetBytes(benchBytes)
			b.ReportAllocs()
			for b.Loop() {
				req, err := http.NewRequestWithContext(b.Context(), "GET", s.url+"/v1/topics/bench/records?limit=1024&max_bytes=2000000", nil)
				if err != nil {
					b.Fatal(err)
				}
				req.Header.Set("Accept", mediaType)
				resp, err := client.Do(req)
				if err != nil {
					b.Fatal(err)
				}
				n, err := io.Copy(io.Discard, resp.Body)
				if err != nil || n < benchBytes {
					b.Fatalf("%d bytes came, %v", n, err)
				}
				resp.Body.Close()
			}
		})
	}
}

// BenchmarkParse parses bodies of 1,024 records of 256 bytes, in each form.
func BenchmarkParse(b *testing.B) {
	h := newServer(b, seb.Options{}, Options{}).handler
	value := strings.Repeat("0123456789abcdef", 16)
	bodies := map[string][]byte{
		typeNDJSON:  []byte(strings.Repeat(value+"\n", benchRecords)),
		typeBatch:   batchBody(slices.Repeat([]string{value}, benchRecords)...),
		typeRecords: []byte(`{"records":[` + strings.Repeat(`{"key":"k","value":"`+value+`"},`, benchRecords-1) + `{"value":""}]}`),
	}
	for _, mediaType := range []string{typeNDJSON, typeBatch, typeRecords} {
		b.Run(mediaType[strings.IndexByte(mediaType, '/')+1:], func(b *testing.B) {
			body := bodies[mediaType]
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				l, err := h.records(b.Context(), &appendSpec{mediaType: mediaType, partition: -1}, body)
				if err != nil {
					b.Fatal(err)
				}
				l.free()
			}
		})
	}
}
