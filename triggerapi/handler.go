package triggerapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/trigger"
)

// New returns what serves the requests about triggers, for the option Triggers of package httpapi. It returns an error in place
// of an answer with an error. It looks at the pattern with which a mux has matched the request.
func New(t *trigger.Triggers) func(w http.ResponseWriter, r *http.Request, body []byte) error {
	h := &handler{t}
	actions := map[string]action{
		"GET /v1/triggers":                             h.list,
		"GET /v1/triggers/{trigger}":                   h.get,
		"PUT /v1/triggers/{trigger}":                   h.put,
		"DELETE /v1/triggers/{trigger}":                h.remove,
		"GET /v1/triggers/{trigger}/versions":          h.versions,
		"GET /v1/triggers/{trigger}/firings":           h.firings,
		"GET /v1/triggers/{trigger}/entities/{entity}": h.explain,
		"POST /v1/triggers/{trigger}/pause":            h.pause,
		"POST /v1/triggers/{trigger}/resume":           h.resume,
		"POST /v1/driplang/check":                      check,
		"POST /v1/driplang/eval":                       eval,
		"POST /v1/driplang/test":                       h.test,
	}
	return func(w http.ResponseWriter, r *http.Request, body []byte) error {
		method := r.Method
		if method == http.MethodHead {
			method = http.MethodGet
		}
		act, known := actions[method+" "+r.Pattern]
		if !known {
			return fmt.Errorf("no action for %s %s", r.Method, r.Pattern)
		}
		return act(w, r, body)
	}
}

type action func(w http.ResponseWriter, r *http.Request, body []byte) error

type handler struct{ triggers *trigger.Triggers }

// version is a version of a trigger in an answer.
type version struct {
	Name       string              `json:"name"`
	Number     int64               `json:"version"`
	Definition *trigger.Definition `json:"definition"`
	Replace    trigger.Replace     `json:"replace,omitempty"`
	CatchUp    bool                `json:"catch_up,omitempty"`
	At         time.Time           `json:"at"`                 // its log time
	Restored   bool                `json:"restored,omitempty"` // the log is a copy: the trigger waits for a further version
}

func versionOf(v *trigger.Version) version {
	return version{Name: v.Name, Number: v.Number, Definition: v.Definition, Replace: v.Replace, CatchUp: v.CatchUp, At: v.At.UTC(), Restored: v.Restored}
}

// described is a trigger in an answer.
type described struct {
	version
	Counts  *trigger.Counts `json:"counts,omitempty"`  // what it has done since this broker began to run it
	Waiting *int            `json:"waiting,omitempty"` // how many entities wait for an event or a deadline
}

// describe adds what this broker knows of a trigger, if it runs it.
func describe(v *trigger.Version, s *trigger.Status) described {
	d := described{version: versionOf(v)}
	if counts, runs := s.Counts[v.Name]; runs {
		d.Counts, d.Waiting = &counts, new(s.Waiting[v.Name])
	}
	return d
}

func (h *handler) list(w http.ResponseWriter, r *http.Request, _ []byte) error {
	all, err := h.triggers.List(r.Context())
	if err != nil {
		return err
	}
	s := h.triggers.Status()
	answer := struct {
		Triggers []described `json:"triggers"`
		Running  bool        `json:"running"` // this broker runs them
		LogTime  *time.Time  `json:"log_time,omitempty"`
		Error    string      `json:"error,omitempty"`
	}{Triggers: []described{}, Running: s.Running, Error: reason(s.Err)}
	if s.Running {
		answer.LogTime = new(s.LogTime.UTC())
	}
	for _, v := range all {
		answer.Triggers = append(answer.Triggers, describe(v, &s))
	}
	return write(w, http.StatusOK, answer)
}

// reason tells callers why a broker does not run the triggers, without the causes, which may name hosts of the operator.
func reason(err error) string {
	if err == nil {
		return ""
	}
	if code := seb.CodeOf(err); code != "" {
		return string(code)
	}
	return "the broker's log says why"
}

func (h *handler) get(w http.ResponseWriter, r *http.Request, _ []byte) error {
	v, err := h.triggers.Get(r.Context(), r.PathValue("trigger"))
	if err != nil {
		return err
	}
	s := h.triggers.Status()
	return write(w, http.StatusOK, describe(v, &s))
}

// put stores a version. The answer's status says whether the trigger is new.
func (h *handler) put(w http.ResponseWriter, r *http.Request, body []byte) error {
	d, o, err := parsePut(body)
	if err != nil {
		return err
	}
	name := r.PathValue("trigger")
	status := http.StatusOK
	if _, err := h.triggers.Get(r.Context(), name); seb.CodeOf(err) == trigger.CodeTriggerNotFound { // Put meets any other error, too
		status = http.StatusCreated
	}
	v, err := h.triggers.Put(r.Context(), name, d, o)
	if err != nil {
		return err
	}
	return write(w, status, versionOf(v))
}

func (h *handler) remove(w http.ResponseWriter, r *http.Request, _ []byte) error {
	if err := h.triggers.Delete(r.Context(), r.PathValue("trigger")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (h *handler) versions(w http.ResponseWriter, r *http.Request, _ []byte) error {
	all, err := h.triggers.Versions(r.Context(), r.PathValue("trigger"))
	if err != nil {
		return err
	}
	answer := map[string][]version{"versions": {}}
	for _, v := range all {
		answer["versions"] = append(answer["versions"], versionOf(v))
	}
	return write(w, http.StatusOK, answer)
}

// Numbers of firings in an answer.
const (
	firingsUsual = 100
	firingsMax   = 1000
)

func (h *handler) firings(w http.ResponseWriter, r *http.Request, _ []byte) error {
	most := firingsUsual
	if q := r.URL.Query(); q.Has("limit") {
		var err error
		given := q.Get("limit")
		if most, err = strconv.Atoi(given); err != nil || most < 1 || most > firingsMax {
			return invalid(fmt.Sprintf("use an integer from 1 to %d", firingsMax), "limit is %.100q; it must be an integer from 1 to %d", given, firingsMax)
		}
	}
	found, err := h.triggers.Firings(r.Context(), r.PathValue("trigger"), most)
	if err != nil {
		return err
	}
	return write(w, http.StatusOK, map[string][]trigger.Firing{"firings": append([]trigger.Firing{}, found...)})
}

// explain tells what each event of an entity did.
func (h *handler) explain(w http.ResponseWriter, r *http.Request, _ []byte) error {
	x, err := h.triggers.Explain(r.Context(), r.PathValue("trigger"), r.PathValue("entity"))
	if err != nil {
		return err
	}
	return write(w, http.StatusOK, x)
}

func (h *handler) pause(w http.ResponseWriter, r *http.Request, body []byte) error {
	return h.setMode(w, r, body, trigger.Paused)
}

func (h *handler) resume(w http.ResponseWriter, r *http.Request, body []byte) error {
	return h.setMode(w, r, body, trigger.Live)
}

func (h *handler) setMode(w http.ResponseWriter, r *http.Request, body []byte, mode trigger.Mode) error {
	if err := object(body, "the body", nil); len(body) > 0 && err != nil {
		return err
	}
	v, err := h.triggers.SetMode(r.Context(), r.PathValue("trigger"), mode)
	if err != nil {
		return err
	}
	return write(w, http.StatusOK, versionOf(v))
}

// write answers with v as JSON.
func write(w http.ResponseWriter, status int, v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // people read the answer, and no browser treats it as HTML
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("encode the response: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(b.Len()))
	w.WriteHeader(status)
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("write the response: %w", err)
	}
	return nil
}
