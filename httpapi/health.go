package httpapi

import (
	"math"
	"net/http"
)

// livez answers 200 as long as the process serves HTTP at all, even if the store fails: a restart of the
// broker would not repair the store.
func (h *Handler) livez(w *response, r *http.Request) error {
	if _, err := parseQuery(r); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, map[string]string{"status": "alive"})
}

// readyz answers 200 if the broker can serve: it has recovered, its last store request
// succeeded, and it is not about to shut down. readyz itself sends no store request.
func (h *Handler) readyz(w *response, r *http.Request) error {
	if _, err := parseQuery(r); err != nil {
		return err
	}
	if h.leaving.Load() {
		return notReady{errShuttingDown()}
	}
	s := h.broker.Status()
	if s.Err != nil {
		return notReady{s.Err}
	}
	return writeJSON(w, http.StatusOK, readyInfo{
		Status: "ready", ClusterID: s.ClusterID, Applied: s.Applied,
		StateBytes: s.State.Used, StateLimit: s.State.Limit, StateDaysLeft: math.Round(s.State.Left.Hours()/24*10) / 10, Warning: s.State.Warning(),
	})
}

// readyInfo is the answer of a broker that can serve.
type readyInfo struct {
	Status        string  `json:"status"`
	ClusterID     string  `json:"cluster_id"`
	Applied       uint64  `json:"applied"`
	StateBytes    int64   `json:"state_bytes"`
	StateLimit    int64   `json:"state_limit_bytes"`
	StateDaysLeft float64 `json:"state_days_left,omitempty"` // until appends are refused; left out if unknown
	Warning       string  `json:"warning,omitempty"`
}

// notReady is an error that is answered with status 503, whatever its code: load balancers
// look only at the status.
type notReady struct{ error }

func (e notReady) Unwrap() error { return e.error }

func (h *Handler) getVersion(w *response, r *http.Request) error {
	if _, err := parseQuery(r); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, map[string]string{"version": h.version})
}
