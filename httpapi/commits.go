package httpapi

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/simple-event-broker/seb"
)

// versionsHeader has the new version of each consumer whose positions a commit has set.
const versionsHeader = "Seb-Versions"

// commitAll does everything that the body asks for in one commit of the log, or does nothing. It frees the
// request's memory before it waits for the commit, and withdraws the request of a client that seems to have
// left. [Handler.appendRecords] says why.
func (h *Handler) commitAll(w *response, _ *http.Request) error {
	r := w.clientRequest()
	pending, err := h.submitCommit(w, r)
	if err != nil {
		return err
	}
	done, err := pending.Wait(r.Context())
	if err != nil {
		return err
	}
	if done.Replayed {
		w.Header().Set("Idempotency-Replayed", "true")
	}
	b := []byte(`{"appends":[`)
	for i, a := range done.Appends {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendedJSON(b, a)
	}
	if len(done.Versions) > 0 {
		// In a header, so that a retry with the same idempotency key gets the same body: the log does not keep the versions.
		w.Header().Set(versionsHeader, strings.Join(done.Versions, ", "))
	}
	return writeBody(w, http.StatusOK, typeJSON, append(b, "]}\n"...))
}

func (h *Handler) submitCommit(w *response, r *http.Request) (*seb.PendingCommit, error) {
	if _, err := parseQuery(r); err != nil {
		return nil, err
	}
	opts, err := idempotencyKey(r.Header)
	if err != nil {
		return nil, err
	}
	body, err := h.readBody(w, r, bodyLimits{bytes: h.limits.RequestBytes / 2}) // the other half of RequestBytes is for the list of records
	if err != nil {
		return nil, err
	}
	defer body.free()
	c, err := h.commitJSONOf(r.Context(), body.data, func(scope seb.Scopes, topic string) error { return h.mayDo(w, scope, topic) })
	if err != nil {
		return nil, err
	}
	defer c.out.free()
	if err := h.mayCommit(w, c.commit); err != nil {
		return nil, err
	}
	ranges := 0
	for _, a := range c.commit.Appends {
		ranges += h.rangesMax(a.Topic, len(a.Records))
	}
	if err := h.reserveRanges(r.Context(), w, ranges); err != nil {
		return nil, err
	}
	return h.broker.CommitAsync(r.Context(), c.commit, opts...)
}

// mayCommit refuses a commit if the caller lacks access to any part of it. The parser has checked every topic
// that it read; mayCommit also checks parts that name no topic.
func (h *Handler) mayCommit(w *response, c seb.Commit) error {
	for i, a := range c.Appends {
		if err := h.mayDo(w, seb.ScopeWrite, a.Topic); err != nil {
			return ofPart(fmt.Sprintf("appends/%d", i), err)
		}
	}
	for i, p := range c.Positions {
		if err := h.mayDo(w, seb.ScopeRead, p.Topic); err != nil {
			return ofPart(fmt.Sprintf("positions/%d", i), err)
		}
	}
	for i, a := range c.Acks {
		if err := h.mayDo(w, seb.ScopeRead, a.Topic); err != nil {
			return ofPart(fmt.Sprintf("acks/%d", i), err)
		}
	}
	for i, e := range c.Ends {
		if err := h.mayDo(w, seb.ScopeRead, e.Topic); err != nil {
			return ofPart(fmt.Sprintf("ends/%d", i), err)
		}
	}
	return nil
}

// ofPart returns err with the name of the part of the commit that caused it, such as acks/0. Errors about
// the size of the whole request stay as they are.
func ofPart(name string, err error) error {
	var e *seb.Error
	if !errors.As(err, &e) || e.Code == seb.CodeOverMemoryBudget || e.Code == seb.CodeRequestTooLarge {
		return err
	}
	told := *e
	told.Part = name
	return &told
}
