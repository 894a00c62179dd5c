package sim

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/s3store"
)

const frontBucket = "bucket"

// tokenPrefix begins every continuation token, so that no token is also a key.
const tokenPrefix = "after:"

// front is a small S3 server between the S3 client of one process and the bucket. A fault of the simulated
// network reaches the S3 client as an error of S3, as a broken connection, or as silence.
type front struct {
	link   *link
	store  objstore.Store // the bucket, behind the simulated network
	listen *listener
	server *http.Server
	ledger *ledger
}

func newFront(l *link, store objstore.Store) *front {
	f := &front{link: l, store: store, listen: newListener(), ledger: newLedger()}
	f.server = &http.Server{Handler: f}
	l.sim.flights.Go(func() {
		if err := f.server.Serve(f.listen); !errors.Is(err, http.ErrServerClosed) {
			l.sim.history.violate("Liveness", "the S3 server of %s ends: %v", l.name, err)
		}
	})
	return f
}

// client returns the S3 client of the process.
func (f *front) client() *s3store.Store {
	store, err := s3store.OpenConfig(context.Background(), s3store.Config{
		Bucket: frontBucket, Endpoint: "http://localhost", AccessKeyID: "sim", SecretAccessKey: "sim",
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return f.listen.dial(ctx, f.link.brittleness())
		},
	})
	f.link.sim.must(err)
	return store
}

// close ends the server, and with it every connection of the S3 client.
func (f *front) close() {
	_ = f.server.Close() // the listener's Close never fails
	f.listen.hangUp()
}

// ServeHTTP implements [http.Handler].
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.link.sim.flights.Add(1)
	defer f.link.sim.flights.Done()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // an incomplete request has no effect
	}
	key, _ := strings.CutPrefix(r.URL.Path, "/"+frontBucket)
	key = strings.TrimPrefix(key, "/")
	switch {
	case r.Method == http.MethodPut:
		f.checkPut(r, key)
		at, err := f.store.Create(r.Context(), key, body)
		f.answer(w, r, call{objstore.VerbCreate, key, at, err}, http.StatusOK)
	case r.Method == http.MethodGet && key == "":
		f.list(w, r)
	case r.Method == http.MethodGet:
		f.get(w, r, key)
	case r.Method == http.MethodDelete:
		at, err := f.store.Delete(r.Context(), key)
		f.answer(w, r, call{objstore.VerbDelete, key, at, err}, http.StatusNoContent)
	default:
		f.link.sim.history.violate("Liveness", "%s sends %s %s, which the S3 server does not serve", f.link.name, r.Method, r.URL)
		refuse(w, http.StatusNotImplemented, "NotImplemented")
	}
}

// checkPut expects the condition of a PutObject to forbid overwriting. It expects at most one PutObject for
// each call of Create by the broker.
func (f *front) checkPut(r *http.Request, key string) {
	if condition := r.Header.Get("If-None-Match"); condition != "*" {
		f.link.sim.history.violate("SlotAgreement", "%s sends a PutObject of %s with If-None-Match: %q", f.link.name, key, condition)
	}
	if !f.ledger.debit("create", key) {
		f.link.sim.history.violate("SlotAgreement", "the S3 client of %s sends a PutObject of %s again by itself", f.link.name, key)
	}
}

func (f *front) get(w http.ResponseWriter, r *http.Request, key string) {
	off, n, err := parseRange(r.Header.Get("Range"))
	if err != nil {
		refuse(w, http.StatusBadRequest, "InvalidArgument")
		return
	}
	object, err := f.store.Get(r.Context(), key, off, n)
	end := object.Size
	if n >= 0 {
		end = min(end, off+n)
	}
	status := http.StatusOK
	switch {
	case err != nil:
	case r.Header.Get("Range") != "" && off >= object.Size:
		w.Header().Set("Content-Range", fmt.Sprintf("bytes */%d", object.Size))
		status = http.StatusRequestedRangeNotSatisfiable
	case r.Header.Get("Range") != "":
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", off, end-1, object.Size))
		status = http.StatusPartialContent
	}
	if err == nil && status != http.StatusRequestedRangeNotSatisfiable {
		w.Header().Set("Content-Length", strconv.FormatInt(end-off, 10))
	}
	if f.answer(w, r, call{objstore.VerbGet, key, object.Time, err}, status) {
		_, _ = w.Write(object.Body) // a body that is too short breaks the connection
	}
}

// parseRange parses a Range header in one of the two forms that the client sends; without the header,
// it returns the range of the whole object.
func parseRange(header string) (off, n int64, err error) {
	if header == "" {
		return 0, -1, nil
	}
	from, to, ok := strings.Cut(strings.TrimPrefix(header, "bytes="), "-")
	if off, err = strconv.ParseInt(from, 10, 64); err != nil || !ok || to == "" {
		return off, -1, err
	}
	last, err := strconv.ParseInt(to, 10, 64)
	return off, last - off + 1, err
}

type listResult struct {
	XMLName               xml.Name `xml:"ListBucketResult"`
	IsTruncated           bool
	NextContinuationToken string `xml:",omitempty"`
	Contents              []listedObject
}

type listedObject struct{ Key string }

func (f *front) list(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	prefix, after := query.Get("prefix"), query.Get("start-after")
	token, goesOn := strings.CutPrefix(query.Get("continuation-token"), tokenPrefix)
	if goesOn {
		after = token
	}
	limit, _ := strconv.Atoi(query.Get("max-keys")) // 0 if the parameter is missing
	page, err := f.store.List(r.Context(), prefix, after, limit)
	if !f.answer(w, r, call{objstore.VerbList, prefix, page.Time, err}, http.StatusOK) {
		return
	}
	result := listResult{IsTruncated: page.More}
	if !goesOn && chance(f.link.draw("empty page "+prefix), 0.1) {
		page.Keys, result.IsTruncated = nil, true // S3 may send such an empty page after it has scanned many keys
	}
	for _, key := range page.Keys {
		result.Contents, after = append(result.Contents, listedObject{key}), key
	}
	if result.IsTruncated {
		result.NextContinuationToken = tokenPrefix + after
	}
	_ = xml.NewEncoder(w).Encode(result) // the connection may be broken
}

// call is a request to the bucket, and the bucket's answer.
type call struct {
	verb objstore.Verb
	key  string
	at   time.Time // zero if the answer has no date
	err  error
}

// answer sends the status and all headers, and reports whether the request succeeded.
func (f *front) answer(w http.ResponseWriter, r *http.Request, c call, success int) bool {
	exists, missing := errors.Is(c.err, objstore.ErrExists), errors.Is(c.err, objstore.ErrNotFound)
	if c.err != nil && !exists && !missing {
		f.fail(w, r, c)
		return false
	}
	if v := verdict(c.verb, c.err); v != "" {
		f.ledger.credit(v, c.key)
	}
	w.Header()["Date"] = nil
	if !c.at.IsZero() {
		w.Header().Set("Date", c.at.UTC().Format(http.TimeFormat))
	}
	switch {
	case exists:
		refuse(w, http.StatusPreconditionFailed, "PreconditionFailed")
	case missing:
		refuse(w, http.StatusNotFound, "NoSuchKey")
	default:
		w.WriteHeader(success)
	}
	return c.err == nil
}

// fail answers like an S3 server that was too busy to execute a request, or that has executed it and
// lost the result.
func (f *front) fail(w http.ResponseWriter, r *http.Request, c call) {
	how := f.link.draw("answer " + string(c.verb) + " " + stableKey(c.key)).IntN(5)
	switch lost := errors.Is(c.err, errLost); {
	case errors.Is(c.err, errCut) || how == 0:
		panic(http.ErrAbortHandler) // breaks the connection
	case how == 1:
		refuse(w, http.StatusInternalServerError, "InternalError")
	case how == 2:
		refuse(w, http.StatusServiceUnavailable, "SlowDown")
	case lost:
		<-r.Context().Done() // until the client hangs up
	case c.verb == objstore.VerbCreate && how == 3:
		refuse(w, http.StatusConflict, "ConditionalRequestConflict")
	default:
		refuse(w, http.StatusTooManyRequests, "SlowDown")
	}
}

// refuse answers with an error of S3.
func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code><Message>an injected fault</Message></Error>", code)
}
