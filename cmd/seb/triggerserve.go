package main

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/httpapi"
	"github.com/simple-event-broker/seb/sebprom"
	"github.com/simple-event-broker/seb/trigger"
	"github.com/simple-event-broker/seb/triggerapi"
)

// triggers opens the triggers of the log, unless --no-triggers is given. The caller calls end before it closes the broker.
func (c *serveCmd) triggers(b *seb.Broker, metrics prometheus.Registerer, log *slog.Logger) (serve httpapi.TriggerHandler, end func()) {
	if c.NoTriggers {
		return nil, func() {}
	}
	t := trigger.Open(b, trigger.Options{Logger: log, Memory: int64(c.TriggerMemory)})
	metrics.MustRegister(sebprom.NewCollector(triggerapi.Metrics(t)))
	return triggerapi.New(t), t.Close
}
