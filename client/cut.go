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
func (c *Client) Cut(ctx context.Context, topics []string) (seb.Cut, error) {
	res, err := c.send(ctx, &request{method: http.MethodGet, path: []string{"cut"}, query: url.Values{"topic": topics}})
	if err != nil {
		return seb.Cut{}, err
	}
	var j struct {
		LogTime time.Time `json:"log_time"`
		Topics  []struct {
			Topic string      `json:"topic"`
			ID    string      `json:"id"`
			Ends  seb.Offsets `json:"ends"`
		} `json:"topics"`
	}
	err = res.decode(&j, func() error {
		if j.LogTime.IsZero() || len(j.Topics) != len(topics) {
			return fmt.Errorf("it has the ends of %d topics, or no log_time; it should have those of %d topics", len(j.Topics), len(topics))
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
	cut := seb.Cut{LogTime: j.LogTime}
	for _, t := range j.Topics {
		cut.Topics = append(cut.Topics, seb.TopicCut(t))
	}
	return cut, nil
}
