package main

import (
	"testing"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

func TestUpgradeRaisesTheLevel(t *testing.T) {
	store := t.TempDir()
	broker := serve(t, nil, "--store", store, "--hold-format")
	saysInMetrics(t, broker, "seb_log_level 5")
	for range 2 { // the second time there is nothing to do
		r := runSeb(t, nil, "upgrade", "--store", store)
		r.want(t, exitOK)
		if r.out != "the log in "+store+" has level 6\n" {
			t.Errorf("it says %q", r.out)
		}
	}
	if a := <-begin(t, "POST", broker.url+"/v1/topics/t/records", "x"); a.err != nil || a.status != 201 {
		t.Fatalf("the broker goes on with %d %s, %v", a.status, a.body, a.err)
	}
	saysInMetrics(t, broker, "seb_log_level 6")
	runSeb(t, nil, "upgrade", "--store", t.TempDir()).want(t, exitRefused, "there is no log in --store")
	runSeb(t, nil, "upgrade", "--store", "memory:").want(t, exitUsage, "--store memory:")
}

func TestRaiseFormatExcludesHoldFormat(t *testing.T) {
	_, err := seb.Open(t.Context(), objstore.NewMemory(), seb.Options{HoldFormat: true, RaiseFormat: true})
	if seb.CodeOf(err) != seb.CodeInvalidRequest {
		t.Errorf("%v", err)
	}
}
