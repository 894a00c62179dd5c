package s3test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	binaryVariable  = "SEB_TEST_VERSITYGW"
	requireVariable = "SEB_TEST_REQUIRE"
	startTimeout    = 20 * time.Second
	startPoll       = 10 * time.Millisecond
)

// VersityGW starts a real S3 server, which keeps objects as files in a temporary directory. It returns the
// URL of an empty store in a bucket of that server. For a missing binary, see [Start].
func VersityGW(t testing.TB) string {
	t.Helper()
	return Start(t).URL
}

// Server is a versitygw server: its files, its port, and its process, which is missing between Kill and
// Restart. Only one goroutine at a time may call the methods.
type Server struct {
	// URL is the URL of an empty store; restarts do not change it.
	URL    string
	Bucket string // of the URL

	t       testing.TB
	binary  string
	dir     string
	port    int
	process *exec.Cmd // nil while no process runs
	exited  chan struct{}
	output  *bytes.Buffer // readable once exited is closed
}

// Start is like [VersityGW], for tests that also stop the server. The variable SEB_TEST_VERSITYGW names the
// binary, and the test fails if there is none. If the variable is not set, Start uses the versitygw in PATH, and
// without one the test is skipped, or fails if SEB_TEST_REQUIRE is 1.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{t: t, binary: findBinary(t), dir: t.TempDir()}
	// versitygw takes each directory in its directory for a bucket. Each server's bucket has a random name: if another
	// test's server got the port, waitReady finds no bucket with this name there, so no test uses a wrong server.
	s.Bucket = "seb-test-" + strings.ToLower(rand.Text())
	if err := os.Mkdir(filepath.Join(s.dir, s.Bucket), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	// Another process may take the free port before the server does: then the loop tries another port.
	var err error
	for range 3 {
		if s.port, err = freePort(); err != nil {
			t.Fatal(err)
		}
		s.URL = storeURL("http://127.0.0.1:"+strconv.Itoa(s.port), s.Bucket)
		if err = s.start(); err == nil {
			return s
		}
	}
	t.Fatalf("start versitygw: %v", err)
	return nil
}

func findBinary(t testing.TB) string {
	t.Helper()
	if binary := os.Getenv(binaryVariable); binary != "" {
		if _, err := os.Stat(binary); err != nil {
			t.Fatalf("%s: %v", binaryVariable, err)
		}
		return binary
	}
	binary, err := exec.LookPath("versitygw")
	if err == nil {
		return binary
	}
	const missing = "needs versitygw, a real S3 server: run `make versitygw`, then set " + binaryVariable + " to the binary or put it in the PATH"
	if os.Getenv(requireVariable) == "1" {
		t.Fatal(missing)
	}
	t.Skip(missing)
	return ""
}

func freePort() (int, error) {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	return port, listener.Close()
}

// Kill ends the process like kill -9; the files stay. It does nothing if the server is down.
func (s *Server) Kill() {
	if s.process == nil {
		return
	}
	// The only error is that the process has already exited.
	_ = s.process.Process.Kill()
	<-s.exited
	s.process = nil
}

// Signal sends a signal to the process, which must be running.
func (s *Server) Signal(sig os.Signal) {
	s.t.Helper()
	if err := s.process.Process.Signal(sig); err != nil {
		s.t.Fatalf("send %v to versitygw: %v", sig, err)
	}
}

// Restart starts the server again, on the same files and port.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	if err := s.start(); err != nil {
		s.t.Fatalf("restart versitygw: %v", err)
	}
}

// start starts the process and returns once it serves the bucket.
func (s *Server) start() error {
	s.output = new(bytes.Buffer)
	// The process needs no context, since a cleanup kills it. t.Context would end the process before the
	// cleanups of the test, which may still need the server.
	process := exec.CommandContext(context.Background(), s.binary, "--port", "127.0.0.1:"+strconv.Itoa(s.port), "--region", region,
		"--keep-alive", "--quiet", "posix", s.dir)
	process.Env = append(os.Environ(), "ROOT_ACCESS_KEY_ID="+AccessKey, "ROOT_SECRET_ACCESS_KEY="+SecretKey)
	process.Stdout, process.Stderr = s.output, s.output
	if err := process.Start(); err != nil {
		return err
	}
	s.process, s.exited = process, make(chan struct{})
	go func(exited chan<- struct{}) {
		defer close(exited)
		_ = process.Wait() // an early exit makes waitReady fail; after a later exit, the test's requests fail
	}(s.exited)
	err := s.waitReady()
	if err != nil {
		s.Kill()
		return fmt.Errorf("%w\n%s", err, s.output)
	}
	return nil
}

func (s *Server) waitReady() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	store := Open(s.t, s.URL)
	for {
		_, err := store.List(ctx, "", "", 1)
		if err == nil {
			return nil
		}
		select {
		case <-s.exited:
			return fmt.Errorf("it exited before it served: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("it does not serve: %w", err)
		case <-time.After(startPoll):
		}
	}
}
