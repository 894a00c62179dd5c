package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/simple-event-broker/seb/internal/test/s3test"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/price"
)

func TestDoctorFindsADirectoryUsableAndLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	r := runSeb(t, nil, "doctor", "--store", dir, "--rounds", "3", "--racers", "8", "--samples", "4")
	r.want(t, exitOK)
	for _, want := range []string{"verdict: usable", "3 rounds of 8, one winner each", "create 1 MiB", "a lone append"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("it does not say %q:\n%s", want, r.out)
		}
	}
	store, err := objstore.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	page, err := store.List(t.Context(), "", "", 10)
	if err != nil || len(page.Keys) > 0 {
		t.Errorf("it left %v, %v", page.Keys, err)
	}
}

func TestDoctorMakesNoDirectory(t *testing.T) {
	above := t.TempDir()
	t.Chdir(above)
	for _, args := range [][]string{{"--store", "seb-dtaa"}, {"--store", above + "/no/such"}, {}, {"--output", "json"}} {
		r := runSeb(t, nil, append([]string{"doctor"}, args...)...)
		r.want(t, exitRefused, "there is no directory ", "`seb serve`")
		if r.out != "" {
			t.Errorf("it says\n%s", r.out)
		}
	}
	if made, err := os.ReadDir(above); err != nil || len(made) > 0 {
		t.Errorf("it has made %v, %v", made, err)
	}
}

// The following stores each break one promise of the store inside. An overwriting store lets Create replace
// an object.
type overwriting struct{ objstore.Store }

func (s overwriting) Create(ctx context.Context, key string, parts ...[]byte) (time.Time, error) {
	at, err := s.Store.Create(ctx, key, parts...)
	if errors.Is(err, objstore.ErrExists) {
		if _, err := s.Delete(ctx, key); err != nil {
			return at, err
		}
		_, _ = s.Store.Create(ctx, key, parts...) // a lost race is a success here
		return at, nil
	}
	return at, err
}

// refusing answers that an object exists although it has just created it.
type refusing struct{ objstore.Store }

func (s refusing) Create(ctx context.Context, key string, parts ...[]byte) (time.Time, error) {
	at, err := s.Store.Create(ctx, key, parts...)
	return at, errors.Join(err, objstore.ErrExists)
}

// unclear answers with another error than ErrExists if a key is taken.
type unclear struct{ objstore.Store }

func (s unclear) Create(ctx context.Context, key string, parts ...[]byte) (time.Time, error) {
	at, err := s.Store.Create(ctx, key, parts...)
	if errors.Is(err, objstore.ErrExists) {
		err = errors.New("something went wrong")
	}
	return at, err
}

// misplacing tells one racer that it won, and stores the bytes of another.
type misplacing struct {
	objstore.Store
	mu    sync.Mutex
	first map[string][]byte
}

func (s *misplacing) Create(ctx context.Context, key string, parts ...[]byte) (time.Time, error) {
	if !strings.Contains(key, "race") {
		return s.Store.Create(ctx, key, parts...)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before, seen := s.first[key]
	if !seen {
		s.first[key] = slices.Concat(parts...)
		return time.Now(), objstore.ErrExists
	}
	return s.Store.Create(ctx, key, before)
}

// forgetful leaves the last object out of a list.
type forgetful struct{ objstore.Store }

func (s forgetful) List(ctx context.Context, prefix, after string, limit int) (objstore.Page, error) {
	page, err := s.Store.List(ctx, prefix, after, limit)
	if len(page.Keys) > 0 && !page.More {
		page.Keys = page.Keys[:len(page.Keys)-1]
	}
	return page, err
}

// whole ignores ranges.
type whole struct{ objstore.Store }

func (s whole) Get(ctx context.Context, key string, _, _ int64) (objstore.Object, error) {
	return s.Store.Get(ctx, key, 0, -1)
}

// timeless sends no dates with its refusals.
type timeless struct{ objstore.Store }

func (s timeless) Create(ctx context.Context, key string, parts ...[]byte) (time.Time, error) {
	at, err := s.Store.Create(ctx, key, parts...)
	if err != nil {
		at = time.Time{}
	}
	return at, err
}

// keeping deletes nothing.
type keeping struct{ objstore.Store }

func (s keeping) Delete(context.Context, string) (time.Time, error) { return time.Now(), nil }

// down fails every request.
type down struct{ objstore.Store }

func (s down) List(context.Context, string, string, int) (objstore.Page, error) {
	return objstore.Page{}, errors.New("connection refused")
}

func TestDoctorFindsWhatAStoreLacks(t *testing.T) {
	memory := func() objstore.Store { return objstore.NewMemory() }
	for _, test := range []struct {
		name  string
		store objstore.Store
		want  string
	}{
		{"sound", memory(), ""},
		{"overwriting", overwriting{memory()}, "racing creates"},
		{"refusing", refusing{memory()}, "racing creates"},
		{"misplacing", &misplacing{Store: memory(), first: map[string][]byte{}}, "racing creates"},
		{"unclear", unclear{memory()}, "create of existing"},
		{"forgetful", forgetful{memory()}, "list after write"},
		{"whole", whole{memory()}, "ranged reads"},
		{"timeless", timeless{memory()}, "store time"},
		{"keeping", keeping{memory()}, "delete"},
		{"down", down{memory()}, "answers"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out strings.Builder
			d := &diagnosis{prober: newProber(test.store), printer: printer{w: &out}}
			d.examine(t.Context(), &doctorCmd{Rounds: 3, Racers: 8, Samples: 4})
			switch {
			case test.want == "" && d.failed != nil:
				t.Errorf("it found %v", d.failed)
			case test.want != "" && (d.failed == nil || !strings.HasPrefix(d.failed.Error(), test.want)):
				t.Errorf("it found %v; %s is broken\n%s", d.failed, test.want, &out)
			}
		})
	}
}

// quota takes the first creates, and has no room for further ones.
type quota struct {
	objstore.Store
	creates *atomic.Int64
}

func (s quota) Create(ctx context.Context, key string, parts ...[]byte) (time.Time, error) {
	if s.creates.Add(-1) < 0 {
		return time.Now(), &objstore.Failure{Detail: "the quota is used up", Hint: "raise the quota", Full: true, Err: objstore.ErrFull}
	}
	return s.Store.Create(ctx, key, parts...)
}

// Wherever the room ends, the store breaks no promise.
func TestDoctorTellsAFullStoreFromABrokenOne(t *testing.T) {
	const needed = 3*8 + 3 + 4 + 1 + 1 // creates of all checks
	for room := range int64(needed + 1) {
		creates := new(atomic.Int64)
		creates.Store(room)
		var out strings.Builder
		d := &diagnosis{prober: newProber(quota{objstore.NewMemory(), creates}), printer: printer{w: &out}}
		d.examine(t.Context(), &doctorCmd{Rounds: 3, Racers: 8, Samples: 4})
		if room < needed != isFull(d.failed) || strings.Contains(out.String(), "BAD") {
			t.Errorf("room for %d creates: %v\n%s", room, d.failed, &out)
		}
		if err := d.verdict(); room < needed && exitCode(t.Context(), err) != exitUnreachable {
			t.Errorf("room for %d creates: %v", room, err)
		}
	}
}

// An interrupting store ends the context at the tenth create.
type interrupting struct {
	objstore.Store
	creates *atomic.Int64
	cancel  func()
}

func (s interrupting) Create(ctx context.Context, key string, parts ...[]byte) (time.Time, error) {
	if s.creates.Add(1) == 10 {
		s.cancel()
	}
	if ctx.Err() != nil {
		return time.Time{}, ctx.Err()
	}
	return s.Store.Create(ctx, key, parts...)
}

func TestInterruptedDoctorSaysNothingBadAndLeavesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	inner := objstore.NewMemory()
	var out strings.Builder
	d := &diagnosis{prober: newProber(interrupting{inner, new(atomic.Int64), cancel}), printer: printer{w: &out}}
	d.examine(ctx, &doctorCmd{Rounds: 3, Racers: 8, Samples: 4})
	if d.failed != nil || strings.Contains(out.String(), "BAD") || len(d.Checks) > 2 { // the checks that create nothing
		t.Errorf("it found %v, %v\n%s", d.failed, d.Checks, &out)
	}
	if page, err := inner.List(t.Context(), "", "", 10); err != nil || len(page.Keys) > 0 {
		t.Errorf("it left %v, %v", page.Keys, err)
	}
}

func TestDoctorMeasuresTheStoresClock(t *testing.T) {
	ahead := objstore.NewMemory(objstore.WithClock(func() time.Time { return time.Now().Add(time.Hour).Truncate(time.Second) }))
	d := &diagnosis{prober: newProber(ahead), printer: printer{w: io.Discard}}
	d.examine(t.Context(), &doctorCmd{Rounds: 1, Racers: 2, Samples: 1})
	detail, err := d.clock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"whole seconds", "ahead of this machine", "set this machine's clock"} {
		if !strings.Contains(detail, want) {
			t.Errorf("it does not say %q: %s", want, detail)
		}
	}
}

func TestPercentile(t *testing.T) {
	samples := []time.Duration{5, 1, 4, 2, 3}
	for p, want := range map[int]time.Duration{1: 1, 20: 1, 50: 3, 90: 5, 99: 5, 100: 5} {
		if got := percentile(samples, p); got != want {
			t.Errorf("p%d is %d, not %d", p, got, want)
		}
	}
	if percentile(nil, 50) != 0 {
		t.Error("no samples have a percentile")
	}
}

func TestCostIsTheListPrice(t *testing.T) {
	r2 := pricesFlag{}
	if err := r2.UnmarshalText([]byte("r2")); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		batch  string
		prices *price.List
		want   string
	}{
		{batchTimed, price.Named("s3"), "at most 4 commits/s, $52 a month at $5 per million PUTs; an idle broker sends none"},
		{batchTimed, nil, "at most 4 commits/s, 10.4 million PUTs a month; an idle broker sends none; the prices of this store are unknown: see seb serve --prices"},
		{batchEach, nil, "a PUT per append; an idle broker sends none; the prices of this store are unknown: see seb serve --prices"},
		{batchTimed, r2.prices, "at most 4 commits/s, $47 a month at $4.5 per million PUTs; an idle broker sends none"},
		{batchEach, r2.prices, "a PUT per append, $4.5 per million; an idle broker sends none"},
		{batchImmediate, price.Named("s3"), "while records come, one PUT after another; 20 PUTs/s at $5 per million cost $259 a month; an idle broker sends none"},
		{batchTimed, &price.Own, "no request fees"},
	} {
		if got := costOf(test.batch, 250*time.Millisecond, test.prices); got != test.want {
			t.Errorf("%s: %q", test.batch, got)
		}
	}
}

func TestDoctorFindsARealS3ServerUsable(t *testing.T) {
	store := s3test.VersityGW(t)
	for _, variable := range s3test.Env() {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
	}
	r := runSeb(t, nil, "doctor", "--store", store, "--rounds", "4", "--samples", "4")
	r.want(t, exitOK)
	for _, want := range []string{"4 rounds of 24, one winner each", "verdict: usable", "10.4 million PUTs a month"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("it does not say %q:\n%s", want, r.out)
		}
	}
}

// Of a store that does not answer, doctor says that the verdict is unknown.
func TestDoctorSaysOnceThatAStoreDoesNotAnswer(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "none")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "none")
	t.Setenv("AWS_MAX_ATTEMPTS", "1")
	r := runSeb(t, nil, "doctor", "--store", "s3://bucket?endpoint=http://127.0.0.1:1")
	r.want(t, exitUnreachable, "failed\n     check the endpoint")
	if !strings.Contains(r.out, "verdict: unknown: the first request to the store failed, so nothing else was checked\n") || strings.Count(r.out+r.err, "connection refused") != 1 {
		t.Errorf("it says\n%s%s", r.out, r.err)
	}
}

// If the endpoint is wrong, all commands that open a store say which parts of --store to check.
func TestWrongEndpointIsExplained(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "none")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "none")
	elsewhere := httptest.NewServer(http.NotFoundHandler()) // a server without S3, such as that of a web site
	t.Cleanup(elsewhere.Close)
	const hint = "\n     check the endpoint, bucket and region in --store"
	var all sync.WaitGroup
	for endpoint, cause := range map[string]string{elsewhere.URL: "the store answered 404 Not Found", "http://127.0.0.1:1": "connection refused"} {
		store := "s3://bucket/prefix?endpoint=" + endpoint
		for _, args := range []string{"doctor", "serve --http 127.0.0.1:0", "key list", "fsck"} {
			all.Go(func() { // they wait, because they try again
				r := runSeb(t, nil, append(strings.Fields(args), "--store", store)...)
				if r.code != exitUnreachable || !strings.Contains(r.err, hint) || !strings.Contains(r.out+r.err, cause) ||
					strings.Contains(r.out, "sound") || strings.Contains(r.err, "list :") {
					t.Errorf("seb %s: %d\n%s%s", args, r.code, r.out, r.err)
				}
			})
		}
	}
	all.Wait()
}

// doctor tells which brokers wrote the newest commits, and whether they can be reached and prove their sessions.
func TestDoctorShowsTheBrokers(t *testing.T) {
	dir := t.TempDir()
	var brokers [3]*process
	for i, advertise := range []string{"http://127.0.0.1:0", "http://127.0.0.1:0", ""} {
		brokers[i] = serve(t, nil, append([]string{"--store", dir}, advertised(advertise)...)...)
		// It creates a topic, which it does not hand over to another broker.
		runSeb(t, strings.NewReader("x\n"), "produce", fmt.Sprint("events", i), "--server", brokers[i].url).want(t, exitOK)
	}
	brokers[1].kill()
	args := []string{"doctor", "--store", dir, "--rounds", "1", "--racers", "2", "--samples", "1"}
	r := runSeb(t, nil, append(args, "--output", "json")...)
	r.want(t, exitOK)
	var d diagnosis
	if err := json.Unmarshal([]byte(r.out), &d); err != nil {
		t.Fatal(err)
	}
	found := map[string]brokerInfo{}
	for _, b := range d.Brokers {
		found[b.Address] = b
	}
	runs, ended, hidden := found[brokers[0].url], found[brokers[1].url], found[""]
	if len(d.Brokers) != 3 || !runs.Proven || runs.RoundTrip <= 0 || ended.Reached || ended.Error == "" || hidden.LastSlot == 0 || hidden.Reached {
		t.Errorf("%+v", d.Brokers)
	}
	r = runSeb(t, nil, args...)
	r.want(t, exitOK)
	for _, want := range []string{brokers[0].url, "reached, and it has proved its session", "not reached", "advertises no address"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("it does not show %q:\n%s", want, r.out)
		}
	}
}

func advertised(url string) []string {
	if url == "" {
		return nil
	}
	return []string{"--advertise", url}
}
