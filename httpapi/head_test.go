package httpapi

import (
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/simple-event-broker/seb"
)

// A HEAD neither creates nor hands out what a GET would, whether the resource exists or not.
func TestHeadChangesNothing(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{Gatherer: prometheus.NewRegistry()})
	s.append("orders", "x")
	s.setQueue("mail", "", http.StatusCreated)
	s.setConsumer("billing", "", http.StatusCreated)
	before := s.broker.Status().Applied
	last := s.broker.Status().ClusterID[:8] + ".1:1"
	for pattern, m := range s.handler.declared {
		if m["GET"].act == nil {
			continue
		}
		for _, names := range [][]string{{"orders", "mail", "billing"}, {"orders", "none", "none"}, {"none", "none", "none"}} {
			path := strings.NewReplacer("{topic}", names[0], "{queue}", names[1], "{consumer}", names[2], "{offset}", "0", "{id}", "1").Replace(pattern)
			for _, header := range [][]string{nil, {"Accept", typeEvents}, {"Accept", typeEvents, "Last-Event-ID", last}} {
				a := s.do("HEAD", path, nil, header...)
				if a.StatusCode >= http.StatusInternalServerError || a.body != "" {
					t.Errorf("HEAD %s: %d %s", path, a.StatusCode, a.body)
				}
				if now := s.broker.Status().Applied; now != before {
					t.Fatalf("HEAD %s %v: the log has %d commits more", path, header, now-before)
				}
			}
		}
	}
	for name, status := range map[string]int{"billing": http.StatusOK, "none": http.StatusNotFound} {
		for _, accept := range []string{typeNDJSON, typeEvents} {
			s.do("HEAD", consumersPath+"/"+name+"/records", nil, "Accept", accept).want(t, status)
		}
	}
	s.wantConsumer("billing", 0)
	s.get(consumersPath+"/none").wantProblem(t, http.StatusNotFound, seb.CodeConsumerNotFound)
	s.setQueue("mail", "", http.StatusOK)
	s.wantHanded("", "0#1") // nothing was handed out
}
