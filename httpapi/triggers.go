package httpapi

import (
	"net/http"

	"github.com/simple-event-broker/seb"
)

// TriggerHandler serves the requests about triggers and their language: triggerapi.New of this module returns one. It gets requests
// whose access, query and body were checked, with the pattern of their route; body is valid until it returns. The API answers with
// the error that it returns, as with errors of its own. Like all that an action writes, its answer is bounded in time.
type TriggerHandler func(w http.ResponseWriter, r *http.Request, body []byte) error

// triggerBodyBytesMax bounds a body about triggers: a definition with an expression as large as one can be fits several times.
const triggerBodyBytesMax = 256 << 10

// triggerAnswerBytes is the memory that is reserved while a request about triggers is served. A list of many triggers takes more, as
// does the broker that runs them.
const triggerAnswerBytes = 64 << 10

// triggerRoutes adds the routes of triggers. A trigger reads and writes any topics, so a caller needs the scope admin for all topics.
func (h *Handler) triggerRoutes(t TriggerHandler) {
	const one = "/v1/triggers/{trigger}"
	plain, limited := h.toTriggers(t), h.toTriggers(t, "limit")
	h.route("/v1/triggers", methods{"GET": {readsTriggers, plain}})
	h.route(one, methods{"GET": {readsTriggers, plain}, "PUT": {changesTriggers, plain}, "DELETE": {changesTriggers, plain}})
	h.route(one+"/versions", methods{"GET": {readsTriggers, plain}})
	h.route(one+"/firings", methods{"GET": {readsTriggers, limited}})
	h.route(one+"/entities/{entity}", methods{"GET": {readsTriggers, plain}})
	h.route(one+"/pause", methods{"POST": {changesTriggers, plain}})
	h.route(one+"/resume", methods{"POST": {changesTriggers, plain}})
	h.route("/v1/driplang/check", methods{"POST": {checksLanguage, plain}})
	h.route("/v1/driplang/eval", methods{"POST": {checksLanguage, plain}})
	h.route("/v1/driplang/test", methods{"POST": {readsTriggers, plain}})
}

// toTriggers returns an action that t carries out. The query may have the given parameters.
func (h *Handler) toTriggers(t TriggerHandler, parameters ...string) action {
	return func(w *response, r *http.Request) error {
		if _, err := parseQuery(r, parameters...); err != nil {
			return err
		}
		memory := h.broker.NewReservation(seb.ShareAnswers, w.holder(), nil)
		if err := memory.Grow(r.Context(), triggerAnswerBytes); err != nil {
			return err
		}
		defer memory.Shrink(triggerAnswerBytes)
		if r.Method != http.MethodPut && r.Method != http.MethodPost {
			return t(w, r, nil)
		}
		body, err := h.readSpec(w, r, triggerBodyBytesMax, specHint)
		if err != nil {
			return err
		}
		defer body.free()
		return t(w, r, body.data)
	}
}
