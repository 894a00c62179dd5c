package client

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"strconv"
	"time"

	"github.com/simple-event-broker/seb"
)

// keyJSON is an API key as brokers write it.
type keyJSON struct {
	ID      seb.KeyID `json:"id"`
	Name    string    `json:"name"`
	Scopes  []string  `json:"scopes"`
	Topics  []string  `json:"topics"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`
	Secret  string    `json:"key"`
}

func (j *keyJSON) key(res *response) (seb.Key, error) {
	scopes, err := seb.ParseScopes(j.Scopes)
	if err != nil {
		return seb.Key{}, unexpected(res.server, err, res.writes)
	}
	return seb.Key{ID: j.ID, Name: j.Name, Scopes: scopes, Topics: j.Topics, Created: j.Created, Expires: j.Expires}, nil
}

// CreateKey does what [seb.Broker.CreateKey] does.
func (c *Client) CreateKey(ctx context.Context, opts seb.KeyOptions) (k seb.Key, secret string, err error) {
	if err := checkText("name of the key, or a topic,", append([]string{opts.Name}, opts.Topics...)...); err != nil {
		return k, "", err
	}
	spec := map[string]any{"name": opts.Name, "scopes": opts.Scopes.Names()}
	if len(opts.Topics) > 0 {
		spec["topics"] = opts.Topics
	}
	if !opts.Expires.IsZero() {
		spec["expires"] = opts.Expires.UTC().Format(time.RFC3339Nano)
	}
	res, err := c.send(ctx, &request{method: http.MethodPost, path: []string{"keys"}, body: jsonBody(spec), writes: true})
	if err != nil {
		return k, "", err
	}
	var j keyJSON
	err = res.decode(&j, func() error {
		if j.ID == 0 || j.Secret == "" {
			return errors.New("it lacks the id or the secret of the key")
		}
		return names("name", j.Name, opts.Name)
	})
	if err != nil {
		return k, "", err
	}
	k, err = j.key(res)
	return k, j.Secret, err
}

// Keys does what [seb.Broker.Keys] does.
func (c *Client) Keys(ctx context.Context, after seb.KeyID) iter.Seq2[seb.Key, error] {
	first := ""
	if after != 0 {
		first = strconv.FormatUint(uint64(after), 10)
	}
	type page struct {
		Items []keyJSON  `json:"keys"`
		Next  *seb.KeyID `json:"next"`
	}
	return list(ctx, c, []string{"keys"}, first, func(res *response) (ks []seb.Key, next string, err error) {
		var p page
		if err := res.decode(&p, func() error { return lists("keys", p.Items) }); err != nil {
			return nil, "", err
		}
		for i := range p.Items {
			k, err := p.Items[i].key(res)
			if err != nil {
				return nil, "", err
			}
			ks = append(ks, k)
		}
		if p.Next != nil {
			next = strconv.FormatUint(uint64(*p.Next), 10)
		}
		return ks, next, nil
	})
}

// RevokeKey does what [seb.Broker.RevokeKey] does. The key that it returns has only its id.
func (c *Client) RevokeKey(ctx context.Context, id seb.KeyID) (seb.Key, error) {
	_, err := c.send(ctx, &request{method: http.MethodDelete, path: []string{"keys", strconv.FormatUint(uint64(id), 10)}, writes: true, bare: true})
	if err != nil {
		return seb.Key{}, err
	}
	return seb.Key{ID: id}, nil
}
