package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// list gets all pages of the list at a path, and returns their items. field is the JSON field of a page that
// has the items.
func (c *client) list(ctx context.Context, field string, segments ...string) ([]json.RawMessage, error) {
	items := []json.RawMessage{}
	base := c.url(nil, segments...)
	for query := (url.Values{}); ; {
		u := base
		if len(query) > 0 {
			u += "?" + query.Encode()
		}
		var page map[string]json.RawMessage
		if _, err := c.call(ctx, http.MethodGet, u, nil, &page); err != nil {
			return nil, err
		}
		var more []json.RawMessage
		if err := json.Unmarshal(page[field], &more); err != nil {
			return nil, fmt.Errorf("%s: the response is not what a broker sends: %w", c.base, err)
		}
		items = append(items, more...)
		next := string(page["next"]) // a name, or the id of a key
		if next == "" || next == "null" || len(more) == 0 {
			return items, nil
		}
		query.Set("after", strings.Trim(next, `"`))
	}
}

// listAs is like list, and decodes the items.
func listAs[T any](ctx context.Context, c *client, field string, segments ...string) ([]T, error) {
	whole, err := c.list(ctx, field, segments...)
	if err != nil {
		return nil, err
	}
	return decodeItems[T](whole)
}

func decodeItems[T any](whole []json.RawMessage) ([]T, error) {
	items := make([]T, len(whole))
	for i, text := range whole {
		if err := json.Unmarshal(text, &items[i]); err != nil {
			return nil, err
		}
	}
	return items, nil
}
