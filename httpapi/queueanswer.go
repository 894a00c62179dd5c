package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/simple-event-broker/seb"
)

// answerSpec is what a worker sends in an ack, a nack, or an extension of record leases.
type answerSpec struct {
	tokens []string
	delay  *time.Duration // only in a nack
	reason string
	lease  *time.Duration // only in an extension
}

const (
	// tokensMax is how many tokens one request may have.
	tokensMax = 1000
	// tokenBytesMin is the fewest bytes that a token takes in a body.
	tokenBytesMin = len(`"0123abcd.1/0:0.1",`)
	// answerBytes is the memory for one token and for the result of that token, which may be an error.
	answerBytes = 512

	tokensHint = "send the tokens in several requests, up to 1000 in each, and reasons of up to 1 KiB"
)

// readAnswer reads from the body the tokens and the fields that the function more returns. The memory of all
// these is reserved until the answer is written. The parameter what names the body in errors; headers lists
// the Seb- headers that the request may have.
func (h *Handler) readAnswer(w *response, r *http.Request, what string, more func(*answerSpec) fields, headers ...string) (s answerSpec, _ error) {
	if err := refuseHeaders(r.Header, headers...); err != nil {
		return s, err
	}
	if _, err := parseParameters(r); err != nil {
		return s, err
	}
	body, err := h.readSpec(w, r, queueBodyBytesMax, tokensHint)
	if err != nil {
		return s, err
	}
	defer body.free()
	tokens := min(tokensMax, len(body.data)/tokenBytesMin+1)
	release, err := h.broker.ReserveMore(r.Context(), int64(tokens)*answerBytes)
	if err != nil {
		return s, err
	}
	w.release = release
	return s, parseAnswer(body.data, what, &s, more(&s))
}

func parseAnswer(body []byte, what string, s *answerSpec, more fields) error {
	if err := parseFields(body, what, append(fields{{"tokens", tokensInto(&s.tokens)}}, more...)); err != nil {
		return err
	}
	if len(s.tokens) == 0 {
		return invalid(`send {"tokens":["TOKEN"]}, with the tokens that came with the records`, "there are no tokens")
	}
	return nil
}

func tokensInto(tokens *[]string) fieldReader {
	return func(j *jsonReader, name string) error {
		return j.list(name, func(int) error {
			token, err := j.string("a token")
			switch {
			case err != nil:
				return err
			case token == nil:
				return invalid("", "a token is null, at byte %d", j.at)
			case len(*tokens) == tokensMax:
				return &seb.Error{
					Code: seb.CodeInvalidRequest, Outcome: seb.NotCommitted, Limit: tokensMax,
					Detail: fmt.Sprintf("there are more than %d tokens", tokensMax), Hint: "send them in several requests",
				}
			}
			*tokens = append(*tokens, string(token))
			return nil
		})
	}
}

func ackFields(*answerSpec) fields { return nil }

func nackFields(s *answerSpec) fields {
	return fields{{"delay", durationInto(&s.delay)}, {"reason", textInto(&s.reason)}}
}

func extendFields(s *answerSpec) fields { return fields{{"lease", durationInto(&s.lease)}} }

// ack serves acknowledgements: a worker has done its work.
func (h *Handler) ack(w *response, r *http.Request) error {
	s, err := h.readAnswer(w, r, "an ack", ackFields)
	if err != nil {
		return err
	}
	return writeResults(w, s.tokens, time.Time{}, h.queue(r).Ack(r.Context(), s.tokens...))
}

// nack serves negative acknowledgements: a worker's work has failed.
func (h *Handler) nack(w *response, r *http.Request) error {
	s, err := h.readAnswer(w, r, "a nack", nackFields)
	if err != nil {
		return err
	}
	err = h.queue(r).Nack(r.Context(), seb.NackOptions{Delay: s.delay, Reason: s.reason}, s.tokens...)
	return writeResults(w, s.tokens, time.Time{}, err)
}

// extend serves extensions of record leases: a worker needs more time.
func (h *Handler) extend(w *response, r *http.Request) error {
	s, err := h.readAnswer(w, r, "an extension", extendFields, forwardedHeader)
	if err != nil {
		return err
	}
	var lease time.Duration
	if s.lease != nil {
		if lease = *s.lease; lease == 0 {
			return invalid("leave it out to use the queue's lease", "lease is 0s; it must be 1s to 12h")
		}
	}
	return h.forwardToOwner(w, r, ownerCall{
		queue: h.queue(r),
		body:  func() []byte { return s.extension() },
		here: func() error {
			until, err := h.queue(r).Extend(r.Context(), lease, s.tokens...)
			return writeResults(w, s.tokens, until, err)
		},
	})
}

// extension returns s as the body of a request to another broker, which extends the leases.
func (s answerSpec) extension() []byte {
	spec := struct {
		Tokens []string `json:"tokens"`
		Lease  string   `json:"lease,omitempty"`
	}{Tokens: s.tokens}
	if s.lease != nil {
		spec.Lease = s.lease.String()
	}
	body, err := json.Marshal(spec)
	if err != nil {
		panic(err) // strings always marshal
	}
	return body
}

// tokenResult says what happened to one token: it was accepted, or it was refused with an error.
type tokenResult struct {
	Token       string      `json:"token"`
	OK          bool        `json:"ok"`
	LeasedUntil string      `json:"leased_until,omitempty"`
	Code        seb.Code    `json:"code,omitempty"`
	Detail      string      `json:"detail,omitempty"`
	Hint        string      `json:"hint,omitempty"`
	Outcome     seb.Outcome `json:"outcome,omitempty"`
}

// writeResults answers with the result of each token. The status means success only if all tokens were
// accepted. If err says that a token was refused, the answer is a problem, which has the results, too.
func writeResults(w *response, tokens []string, until time.Time, err error) error {
	var some *seb.TokensError
	if err != nil && !errors.As(err, &some) {
		return err
	}
	results := make([]tokenResult, len(tokens))
	for i, token := range tokens {
		results[i] = tokenResult{Token: token, OK: true}
		if some != nil && some.Errors[i] != nil {
			p := problemOf(some.Errors[i])
			results[i] = tokenResult{Token: token, Code: p.Code, Detail: p.Detail, Hint: p.Hint, Outcome: p.Outcome}
		} else if !until.IsZero() {
			results[i].LeasedUntil = until.Format(timestampLayout)
		}
	}
	if some != nil {
		return &tokensRefused{some, results}
	}
	return writeJSON(w, http.StatusOK, struct {
		Results []tokenResult `json:"results"`
	}{results})
}

// tokensRefused is the error for a request of which some tokens, or all, were refused.
type tokensRefused struct {
	*seb.TokensError
	results []tokenResult
}
