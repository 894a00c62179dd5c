package main

import (
	"bytes"
	"testing"

	"github.com/simple-event-broker/seb/client"
	"github.com/simple-event-broker/seb/examples/internal/servers"
)

const want = `3 orders in the log
tea for alice
milk for bob
cake for alice
`

func TestOrdersWithABrokerInTheProcess(t *testing.T) {
	api, err := embedded(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	check(t, api)
}

func TestOrdersWithABrokerInAnotherProcess(t *testing.T) {
	binary, err := servers.Build(t.Context(), servers.SebProgram, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	broker, err := servers.StartSeb(t.Context(), binary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Kill)
	api, err := client.New(client.Options{Servers: []string{broker.URL}})
	if err != nil {
		t.Fatal(err)
	}
	check(t, api)
}

func check(t *testing.T, api client.API) {
	t.Helper()
	var out bytes.Buffer
	if err := run(t.Context(), api, &out); err != nil {
		t.Fatal(err)
	}
	if err := api.Close(); err != nil {
		t.Fatal(err)
	}
	if out.String() != want {
		t.Errorf("got %s, want %s", out.String(), want)
	}
}
