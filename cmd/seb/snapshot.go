package main

import (
	"bytes"
	"context"
	"fmt"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/client"
)

// snapshot is what a broker reports at one moment.
type snapshot struct {
	at       time.Time
	notReady string // why the broker is not ready; "" if the broker is ready
	metrics  map[string]*dto.MetricFamily
	topics   []seb.Topic
	peers    []seb.PeerInfo
}

// takeSnapshot asks a broker for a snapshot. If the broker is not ready, that is no error: the snapshot says
// why.
func takeSnapshot(ctx context.Context, broker *client.Client, timeout time.Duration) (*snapshot, error) {
	within, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	l, err := readSnapshot(within, broker)
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		err = &seb.Error{Code: client.CodeUnreachable, Detail: fmt.Sprintf("the server did not answer within %v", timeout)}
	}
	return l, err
}

// readSnapshot is takeSnapshot without a time limit.
func readSnapshot(ctx context.Context, broker *client.Client) (*snapshot, error) {
	l := &snapshot{}
	if err := broker.Ready(ctx); isFromBroker(err) {
		l.notReady, _ = said(err)
	} else if err != nil {
		return nil, err
	}
	var err error
	if l.metrics, err = readMetrics(ctx, broker); err != nil {
		return nil, err
	}
	topics, err := seb.Collect(broker.Topics(ctx, seb.ListOptions{}))
	if err != nil && (l.notReady == "" || !isFromBroker(err)) {
		return nil, err // if the broker is not ready, it may refuse the list: the snapshot then has no topics
	}
	l.topics, l.at = topics, time.Now()
	if l.peers, err = broker.Peers(ctx); err != nil && !isFromBroker(err) {
		return nil, err // an older broker does not know the request, and the key may not have the scope
	}
	return l, nil
}

// isFromBroker tells whether a broker has answered with err.
func isFromBroker(err error) bool {
	switch seb.CodeOf(err) {
	case "", client.CodeUnreachable, client.CodeUnexpectedResponse, seb.CodeCanceled:
		return false
	default:
		return true
	}
}

func readMetrics(ctx context.Context, broker *client.Client) (map[string]*dto.MetricFamily, error) {
	text, err := broker.Metrics(ctx)
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoMetrics, err)
	}
	if families["seb_applied_slot"] == nil {
		return nil, errNoMetrics
	}
	return families, nil
}

// sum adds up the series of the metric with the given name, a counter or a gauge. If label is not "", it adds
// up only the series in which label has the given value.
func (l *snapshot) sum(name, label, value string) float64 {
	var total float64
	for _, m := range l.metrics[name].GetMetric() {
		if label == "" || labelOf(m, label) == value {
			total += m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()
		}
	}
	return total
}

// values returns all values that a label has in the series of a metric.
func (l *snapshot) values(name, label string) map[string]bool {
	found := map[string]bool{}
	for _, m := range l.metrics[name].GetMetric() {
		found[labelOf(m, label)] = true
	}
	return found
}

func labelOf(m *dto.Metric, name string) string {
	for _, pair := range m.GetLabel() {
		if pair.GetName() == name {
			return pair.GetValue()
		}
	}
	return ""
}
