package httpapi

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/simple-event-broker/seb"
)

// keyBodyBytesMax bounds a body that describes an API key: a thousand topic patterns fit.
const keyBodyBytesMax = 512 << 10

// key writes k as a JSON object. The object has the secret of the key only if secret is not "".
func (c *chunks) key(k *seb.Key, secret string) {
	c.buf = append(c.buf, `{"id":`...)
	c.buf = strconv.AppendUint(c.buf, uint64(k.ID), 10)
	c.buf = append(c.buf, `,"name":`...)
	c.quoted([]byte(k.Name))
	c.buf = append(c.buf, `,"scopes":`...)
	c.texts(k.Scopes.Names())
	c.buf = append(c.buf, `,"topics":`...)
	c.texts(k.Topics)
	c.buf = append(c.buf, `,"created":"`...)
	c.timestamp(k.Created)
	c.buf = append(c.buf, `","expires":`...)
	if k.Expires.IsZero() {
		c.buf = append(c.buf, "null"...) // the key never expires
	} else {
		c.buf = append(c.buf, '"')
		c.timestamp(k.Expires)
		c.buf = append(c.buf, '"')
	}
	if secret != "" {
		c.buf = append(c.buf, `,"key":`...)
		c.quoted([]byte(secret))
	}
	c.text("}")
}

// texts writes a list of strings.
func (c *chunks) texts(list []string) {
	c.buf = append(c.buf, '[')
	for i, s := range list {
		if i > 0 {
			c.buf = append(c.buf, ',')
		}
		c.quoted([]byte(s))
	}
	c.buf = append(c.buf, ']')
}

// keyText names a key in the audit log.
func keyText(k seb.Key) string { return fmt.Sprintf("key %d %q", k.ID, k.Name) }

// createKey creates an API key. Its answer is the only answer that has the secret of the key.
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
	w.Header().Set("Content-Type", typeJSON)
	w.WriteHeader(http.StatusCreated)
	out := newChunks(w)
	defer out.free()
	out.key(&k, secret)
	out.text("\n")
	return out.flush()
}

func (h *Handler) listKeys(w *response, r *http.Request) error {
	p, err := parsePage(r)
	if err != nil {
		return err
	}
	var after uint64
	if p.after != "" {
		if after, err = strconv.ParseUint(p.after, 10, 64); err != nil {
			return invalid("as after, send the value of next from the previous response, such as 7", "invalid after %.100q: it must be the id of an API key", p.after)
		}
	}
	return listing[seb.Key]{
		name: "keys", limit: p.limit, add: func(c *chunks, k *seb.Key) { c.key(k, "") },
		items: h.broker.Keys(r.Context(), seb.KeyID(after)),
		next:  func(c *chunks, last *seb.Key) { c.buf = strconv.AppendUint(c.buf, uint64(last.ID), 10) },
	}.write(r.Context(), h, w)
}

func (h *Handler) revokeKey(w *response, r *http.Request) error {
	if _, err := parseQuery(r); err != nil {
		return err
	}
	id, err := strconv.ParseUint(r.PathValue("id"), 10, 64)
	if err != nil {
		return invalid("GET /v1/keys lists the keys with their ids", "invalid API key id %q", r.PathValue("id"))
	}
	k, err := h.broker.RevokeKey(r.Context(), seb.KeyID(id))
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
				// An empty list must not mean all topics: a client that sends an empty list hardly wants to
				// give access to all topics.
				return invalid("to create a key for all topics, leave topics out", "topics is an empty list")
			}
			return err
		case "expires":
			s, err := j.stringOf("expires", aTime)
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

// strings reads a list of strings. If the value is null, strings returns nil.
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
