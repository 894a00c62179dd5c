package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/simple-event-broker/seb/objstore"
)

// ErrInjected is wrapped by the errors that faults make up, except ErrExists and the error of an ended context. From a
// Create it means that the outcome is unknown, unless the error also wraps ErrFull, as that of [Full] does.
var ErrInjected = errors.New("injected fault")

// Request is one call of a store's method.
type Request struct {
	Verb   objstore.Verb
	Key    string   // of a List, the prefix
	Parts  [][]byte // of Create; the caller may reuse the memory after Create has returned
	Off, N int64    // of Get
	After  string   // of List
	Limit  int      // of List
}

// Answer is the result of a method without its error. Every verb sets Time, the time of the
// store's clock.
type Answer struct {
	Time time.Time
	Body []byte   // of Get
	Size int64    // of Get
	Keys []string // of List
	More bool     // of List
}

// Next executes a request.
type Next func(context.Context, Request) (Answer, error)

// Fault stands between a caller and a store. It may call next to execute the request: at once, later or
// never. It may change the request before that, and the answer after that.
type Fault func(ctx context.Context, request Request, next Next) (Answer, error)

// Faulty is a store that applies faults to its requests, and counts them. It is
// safe for concurrent use.
type Faulty struct {
	store objstore.Store

	mu    sync.Mutex
	down  bool
	rules []*rule
	count map[target]int
}

type target struct {
	verb objstore.Verb
	key  string
}

type rule struct {
	target
	fault Fault
}

// NewFaulty returns a wrapper of store without any faults.
func NewFaulty(store objstore.Store) *Faulty {
	return &Faulty{store: store, count: make(map[target]int)}
}

// On applies fault to the requests of verb ("" for all) whose key begins with keyPrefix, until remove is
// called. If several faults match a request, the fault that was added first gets the request first, and
// calls the others as its next.
func (f *Faulty) On(verb objstore.Verb, keyPrefix string, fault Fault) (remove func()) {
	r := &rule{target{verb, keyPrefix}, fault}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = append(f.rules, r)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.rules = slices.DeleteFunc(slices.Clone(f.rules), func(other *rule) bool { return other == r })
	}
}

// SetDown begins or ends an outage, in which no request reaches the store.
func (f *Faulty) SetDown(down bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = down
}

// Count returns the number of requests of verb ("" for all) whose key begins with
// keyPrefix, whatever their results.
func (f *Faulty) Count(verb objstore.Verb, keyPrefix string) int {
	want := target{verb, keyPrefix}
	f.mu.Lock()
	defer f.mu.Unlock()
	sum := 0
	for seen, count := range f.count {
		if want.matches(seen.verb, seen.key) {
			sum += count
		}
	}
	return sum
}

func (t target) matches(verb objstore.Verb, key string) bool {
	return (t.verb == "" || t.verb == verb) && strings.HasPrefix(key, t.key)
}

// do executes a request through all faults that match it.
func (f *Faulty) do(ctx context.Context, request Request) (Answer, error) {
	f.mu.Lock()
	f.count[target{request.Verb, request.Key}]++
	down, rules := f.down, slices.Clone(f.rules)
	f.mu.Unlock()
	if down {
		return Answer{}, injected(request, "the store is down")
	}
	next := func(ctx context.Context, request Request) (Answer, error) { return execute(ctx, f.store, request) }
	for _, r := range slices.Backward(rules) {
		if inner := next; r.matches(request.Verb, request.Key) {
			next = func(ctx context.Context, request Request) (Answer, error) { return r.fault(ctx, request, inner) }
		}
	}
	return next(ctx, request)
}

// execute executes a request at a store.
func execute(ctx context.Context, store objstore.Store, request Request) (answer Answer, err error) {
	switch request.Verb {
	case objstore.VerbCreate:
		answer.Time, err = store.Create(ctx, request.Key, request.Parts...)
	case objstore.VerbGet:
		var object objstore.Object
		object, err = store.Get(ctx, request.Key, request.Off, request.N)
		answer = Answer{Time: object.Time, Body: object.Body, Size: object.Size}
	case objstore.VerbList:
		var page objstore.Page
		page, err = store.List(ctx, request.Key, request.After, request.Limit)
		answer = Answer{Time: page.Time, Keys: page.Keys, More: page.More}
	case objstore.VerbDelete:
		answer.Time, err = store.Delete(ctx, request.Key)
	default:
		panic(fmt.Sprintf("storetest: unknown verb %q", request.Verb))
	}
	return answer, err
}

func injected(request Request, what string) error {
	return fmt.Errorf("%s %s: %w: %s", request.Verb, request.Key, ErrInjected, what)
}

// Create implements [objstore.Store].
func (f *Faulty) Create(ctx context.Context, key string, parts ...[]byte) (time.Time, error) {
	answer, err := f.do(ctx, Request{Verb: objstore.VerbCreate, Key: key, Parts: parts})
	return answer.Time, err
}

// Get implements [objstore.Store].
func (f *Faulty) Get(ctx context.Context, key string, off, n int64) (objstore.Object, error) {
	answer, err := f.do(ctx, Request{Verb: objstore.VerbGet, Key: key, Off: off, N: n})
	return objstore.Object{Body: answer.Body, Size: answer.Size, Time: answer.Time}, err
}

// List implements [objstore.Store].
func (f *Faulty) List(ctx context.Context, prefix, after string, limit int) (objstore.Page, error) {
	answer, err := f.do(ctx, Request{Verb: objstore.VerbList, Key: prefix, After: after, Limit: limit})
	return objstore.Page{Keys: answer.Keys, More: answer.More, Time: answer.Time}, err
}

// Delete implements [objstore.Store].
func (f *Faulty) Delete(ctx context.Context, key string) (time.Time, error) {
	answer, err := f.do(ctx, Request{Verb: objstore.VerbDelete, Key: key})
	return answer.Time, err
}
