package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

const (
	versitygwVariable = "SEB_TEST_VERSITYGW"
	slowStoreBucket   = "growth"
	slowStoreUser     = "seb-growth"
	slowStoreSecret   = "seb-growth-secret"
)

var errNoVersitygw = errors.New("it needs versitygw, an S3 server: run `make versitygw`, then set " + versitygwVariable + " to the binary")

// slowStore is an S3 server on this machine, and a proxy in front of the server that delays requests.
type slowStore struct {
	direct, slow string    // URLs of the same store: without and with the proxy
	slowAddress  string    // of the proxy
	requests     *requests // that went through the proxy
	stop         func()
}

// startSlowStore starts versitygw on a new directory, and a proxy that delays each request by what delay
// returns. It returns errNoVersitygw if the environment names no versitygw.
func startSlowStore(ctx context.Context, r *run, delay func() time.Duration) (*slowStore, error) {
	binary := os.Getenv(versitygwVariable)
	if binary == "" {
		return nil, errNoVersitygw
	}
	dir, err := r.store()
	if err != nil {
		return nil, err
	}
	if err := os.Mkdir(filepath.Join(dir, slowStoreBucket), 0o700); err != nil {
		return nil, err
	}
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	gateway := exec.CommandContext(ctx, binary, "--port", address, "--region", "us-east-1", "--keep-alive", "--quiet", "posix", dir)
	gateway.Env = append(os.Environ(), "ROOT_ACCESS_KEY_ID="+slowStoreUser, "ROOT_SECRET_ACCESS_KEY="+slowStoreSecret)
	if err := gateway.Start(); err != nil {
		return nil, fmt.Errorf("start versitygw: %w", err)
	}
	endGateway := func() {
		_ = gateway.Process.Kill() // the process may have ended
		_ = gateway.Wait()         // returns an error, since it was killed
	}
	if err := answers(ctx, "http://"+address); err != nil {
		endGateway()
		return nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		endGateway()
		return nil, err
	}
	counted := new(requests)
	proxy := &http.Server{Handler: delayed(address, delay, counted), ReadHeaderTimeout: time.Minute}
	go func() { _ = proxy.Serve(listener) }() // returns an error once the proxy is closed
	return &slowStore{
		direct: storeURL(address), slow: storeURL(listener.Addr().String()), slowAddress: listener.Addr().String(), requests: counted,
		stop: func() { _ = proxy.Close(); endGateway() }, // an error does not matter: nobody uses the proxy any longer
	}, nil
}

// storeURL returns the URL of the store at an address.
func storeURL(address string) string {
	return fmt.Sprintf("s3://%s/store?%s", slowStoreBucket, url.Values{"endpoint": {"http://" + address}, "region": {"us-east-1"}}.Encode())
}

// delayed returns a proxy that forwards requests to address unchanged, each after a delay, and counts them.
func delayed(address string, delay func() time.Duration, counted *requests) http.Handler {
	return &httputil.ReverseProxy{
		ModifyResponse: func(resp *http.Response) error {
			if resp.Request.Method == http.MethodPut && resp.StatusCode == http.StatusPreconditionFailed {
				counted.vain()
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, _ error) {
			if r.Method == http.MethodPut {
				counted.vain()
			}
			w.WriteHeader(http.StatusBadGateway)
		},
		Rewrite: func(p *httputil.ProxyRequest) {
			counted.add(p.In)
			pause(p.In.Context(), delay())
			p.SetURL(&url.URL{Scheme: "http", Host: address})
			p.Out.Host = p.In.Host // the signature covers the host
		},
		Transport: &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true},
	}
}

// requests counts requests to an S3 server.
type requests struct {
	mu sync.Mutex
	requestCounts
}

// requestCounts has numbers of requests, by how S3 charges for them.
type requestCounts struct {
	puts    int // including those that were refused
	refused int // PUTs of a key that existed, or that the broker gave up
	gets    int
	lists   int
}

// add counts a request. Other requests, such as DELETE, cost nothing.
func (r *requests) add(req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case req.Method == http.MethodPut:
		r.puts++
	case req.Method == http.MethodGet && req.URL.Query().Has("list-type"):
		r.lists++
	case req.Method == http.MethodGet || req.Method == http.MethodHead:
		r.gets++
	}
}

// vain counts a PUT that has written nothing, or whose outcome the broker has not waited for.
func (r *requests) vain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused++
}

// now returns the counts so far.
func (r *requests) now() requestCounts {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requestCounts
}

// since returns the requests that were counted after earlier.
func (c requestCounts) since(earlier requestCounts) requestCounts {
	return requestCounts{c.puts - earlier.puts, c.refused - earlier.refused, c.gets - earlier.gets, c.lists - earlier.lists}
}

// lognormal returns random durations with the given median. sigma is the standard deviation of their logarithm.
func lognormal(median time.Duration, sigma float64) func() time.Duration {
	return func() time.Duration { return time.Duration(float64(median) * math.Exp(sigma*rand.NormFloat64())) }
}

// answers waits until a server answers a request, with any status.
func answers(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			return errors.Join(err, resp.Body.Close())
		}
		if ctx.Err() != nil {
			return fmt.Errorf("versitygw does not answer: %w", err)
		}
		pause(ctx, 20*time.Millisecond)
	}
}

func freeAddress(ctx context.Context) (string, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}
