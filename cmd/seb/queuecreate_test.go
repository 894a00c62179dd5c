package main

import (
	"strings"
	"sync"
	"testing"
)

// Of several programs that create a queue at the same time with different settings, one creates it, and the others
// change nothing and say so.
func TestQueueIsCreatedByOneProgram(t *testing.T) {
	broker := serve(t, nil, "--store", "memory:", "--linger", "1ms")
	runSeb(t, nil, "topic", "create", "orders", "--server", broker.url).want(t, exitOK)
	attempts := []string{"1", "2", "3", "4"}
	results := make([]result, len(attempts))
	var wg sync.WaitGroup
	for i, n := range attempts {
		wg.Go(func() {
			results[i] = runSeb(t, nil, "queue", "create", "orders", "mail", "--max-attempts", n, "--server", broker.url)
		})
	}
	wg.Wait()
	created := ""
	for i, r := range results {
		if r.code == exitOK && created == "" {
			created = attempts[i]
			continue
		}
		r.want(t, exitRefused, "create queue mail of orders: it exists with other settings", "--if-not-exists")
	}
	if r := runSeb(t, nil, "queue", "show", "orders", "mail", "--output", "json", "--server", broker.url); !strings.Contains(r.out, `"max_attempts": `+created) {
		t.Errorf("%q attempts were created: %s", created, r.out)
	}
	runSeb(t, nil, "queue", "create", "orders", "mail", "--max-attempts", created, "--server", broker.url).want(t, exitOK)
	runSeb(t, nil, "queue", "create", "orders", "mail", "--if-not-exists", "--server", broker.url).want(t, exitOK)
}
