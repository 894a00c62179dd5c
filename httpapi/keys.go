package httpapi

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/simple-event-broker/seb"
)

// keyBodyBytesMax bounds what describes an API key: a thousand topic patterns fit.
const keyBodyBytesMax = 512 << 10

type keyJSON struct {
	ID      uint64   `json:"id"`
	Name    string   `json:"name"`
	Scopes  []string `json:"scopes"`
	Topics  []string `json:"topics"`
	Created string   `json:"created"`
	Expires *string  `json:"expires"` // null: never
	Key     string   `json:"key,omitempty"`
}

func toKeyJSON(k seb.Key, secret string) keyJSON {
	j := keyJSON{ID: k.ID, Name: k.Name, Scopes: k.Scopes.Names(), Topics: k.Topics, Created: k.Created.Format(timestampLayout), Key: secret}
	if !k.Expires.IsZero() {
		s := k.Expires.Format(timestampLayout)
		j.Expires = &s
	}
	return j
}

// keyText names a key where people read: logs.
func keyText(k seb.Key) string { return fmt.Sprintf("key %d %q", k.ID, k.Name) }

// createKey is the only answer that ever holds a key's secret.
func (h *Handler) createKey(w *response, r *http.Request) error {
	if _, err := parseQuery(r); err != nil {
		return err
	}
	body, err := h.readSpec(w, r, keyBodyBytesMax, specHint)
	if err != nil {
		return err
	}
	opts, err := parseKeyOptions(body.data)
	body.free()
	if err != nil {
		return err
	}
	k, secret, err := h.broker.CreateKey(r.Context(), opts)
	if err != nil {
		return err
	}
	w.did = fmt.Sprintf("created %s for %s of %s", keyText(k), k.Scopes, strings.Join(k.Topics, ", "))
	return writeJSON(w, http.StatusCreated, toKeyJSON(k, secret))
}

func (h *Handler) listKeys(w *response, r *http.Request) error {
	if _, err := parseQuery(r); err != nil {
		return err
	}
	ks, err := h.broker.Keys(r.Context())
	if err != nil {
		return err
	}
	answer := struct {
		Keys []keyJSON `json:"keys"`
	}{make([]keyJSON, len(ks))}
	for i, k := range ks {
		answer.Keys[i] = toKeyJSON(k, "")
	}
	return writeJSON(w, http.StatusOK, answer)
}

func (h *Handler) revokeKey(w *response, r *http.Request) error {
	if _, err := parseQuery(r); err != nil {
		return err
	}
	id, err := strconv.ParseUint(r.PathValue("id"), 10, 64)
	if err != nil {
		return invalid("GET /v1/keys lists them with their ids", "%q is no id of an API key", r.PathValue("id"))
	}
	k, err := h.broker.RevokeKey(r.Context(), id)
	if err != nil {
		return err
	}
	w.did = "revoked " + keyText(k)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func parseKeyOptions(body []byte) (o seb.KeyOptions, err error) {
	j, err := newJSONReader(body)
	if err != nil {
		return o, err
	}
	err = j.object("a key", func(name []byte) error {
		switch string(name) {
		case "name":
			s, err := j.string("name")
			o.Name = string(s)
			return err
		case "scopes":
			names, err := j.strings("scopes")
			if err != nil {
				return err
			}
			o.Scopes, err = seb.ParseScopes(names)
			return err
		case "topics":
			o.Topics, err = j.strings("topics")
			if err == nil && o.Topics != nil && len(o.Topics) == 0 {
				// Whoever makes such a list doesn't mean all.
				return invalid("leave topics out for a key to all of them", "topics is an empty list")
			}
			return err
		case "expires":
			s, err := j.string("expires")
			if err == nil && s != nil {
				o.Expires, err = parseTimestamp(string(s))
			}
			return err
		default:
			return j.unknown("a key", name, "name, scopes, topics, expires")
		}
	})
	if err != nil {
		return o, err
	}
	o.Expires = o.Expires.Truncate(time.Microsecond)
	return o, j.end()
}

// strings reads a list of strings, nil for null.
func (j *jsonReader) strings(what string) (list []string, err error) {
	if j.null() {
		return nil, nil
	}
	list = []string{}
	err = j.list(what, func(int) error {
		s, err := j.string("each of " + what)
		list = append(list, string(s))
		return err
	})
	return list, err
}
