package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/simple-event-broker/seb"
)

// Cut does what [seb.Broker.Cut] does.
func (c *Client) Cut(ctx context.Context, topics []string, o seb.CutOptions) (seb.Cut, error) {
	r := &request{method: http.MethodGet, path: []string{"cut"}, query: url.Values{"topic": topics}}
	if !o.Later.IsZero() {
		r.query.Set("later", inRange(o.Later).Format(time.RFC3339Nano))
		r.query.Set("wait", cutWait.String())
		r.wait = cutWait
	}
	for {
		cut, err := c.cut(ctx, r, topics)
		if err != nil || cut.LogTime.After(o.Later) {
			return cut, err
		}
	}
}

// inRange returns t, or the nearest time that a request can have.
func inRange(t time.Time) time.Time {
	first, last := time.Unix(0, 0), time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	switch {
	case t.Before(first):
		return first.UTC()
	case t.After(last):
		return last
	}
	return t.UTC()
}

// cutWait is how long one request for a cut waits; a broker allows no longer wait.
const cutWait = 5 * time.Minute

func (c *Client) cut(ctx context.Context, r *request, topics []string) (seb.Cut, error) {
	res, err := c.send(ctx, r)
	if err != nil {
		return seb.Cut{}, err
	}
	var j struct {
		LogTime      time.Time `json:"log_time"`
		StoreTime    time.Time `json:"store_time"`
		StoreTimeAge duration  `json:"store_time_age"`
		Topics       []struct {
			Topic string      `json:"topic"`
			ID    string      `json:"id"`
			Ends  seb.Offsets `json:"ends"`
		} `json:"topics"`
	}
	err = res.decode(&j, func() error {
		if j.LogTime.IsZero() || j.StoreTime.IsZero() || len(j.Topics) != len(topics) {
			return fmt.Errorf("it has the ends of %d topics, or lacks log_time or store_time; it should have the ends of %d topics", len(j.Topics), len(topics))
		}
		for i, t := range j.Topics {
			if t.Topic != topics[i] || t.ID == "" || len(t.Ends) == 0 {
				return fmt.Errorf("it has no id or no ends of topic %q", topics[i])
			}
		}
		return nil
	})
	if err != nil {
		return seb.Cut{}, err
	}
	cut := seb.Cut{LogTime: j.LogTime, StoreTime: j.StoreTime, StoreTimeAge: time.Duration(j.StoreTimeAge)}
	for _, t := range j.Topics {
		cut.Topics = append(cut.Topics, seb.TopicCut(t))
	}
	return cut, nil
}
