package main

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/simple-event-broker/seb/internal/test/s3test"
	"github.com/simple-event-broker/seb/price"
)

func TestWhereABudgetIsInForce(t *testing.T) {
	second, five := time.Second, 5.0
	s3, none := price.Named("s3"), 0.0
	for name, test := range map[string]struct {
		c      serveCmd
		kind   storeKind
		prices *price.List
		want   float64
	}{
		"S3 with a price":       {serveCmd{Batch: batchTimed}, kindS3, s3, 10},
		"a price that is given": {serveCmd{Batch: batchTimed, Budget: &five}, kindS3, s3, 5},
		"none is asked for":     {serveCmd{Batch: batchTimed, Budget: &none}, kindS3, s3, 0},
		"a linger":              {serveCmd{Batch: batchTimed, Linger: &second}, kindS3, s3, 0},
		"a linger and a budget": {serveCmd{Batch: batchTimed, Linger: &second, Budget: &five}, kindS3, s3, 5},
		"each":                  {serveCmd{Batch: batchEach}, kindS3, s3, 0},
		"unknown prices":        {serveCmd{Batch: batchTimed}, kindS3, nil, 0},
		"free PUTs":             {serveCmd{Batch: batchTimed}, kindS3, price.Named("hetzner"), 0},
		"a directory":           {serveCmd{Batch: batchTimed}, kindDirectory, s3, 0},
		"memory":                {serveCmd{Batch: batchTimed}, kindMemory, s3, 0},
	} {
		test.c.AppendTimeout, test.c.MaxLinger = 30*time.Second, 5*time.Second
		if got := test.c.budget(test.kind, test.prices); got != test.want {
			t.Errorf("%s: the budget is %v, not %v", name, got, test.want)
		}
		batching, budget, err := test.c.pace(test.kind, test.prices, slog.New(slog.DiscardHandler))
		if err != nil || batching == nil || (budget != nil) != (test.want > 0) {
			t.Errorf("%s: a budget %v: %v", name, budget != nil, err)
		}
		if err := test.c.checkBudget(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBudgetsThatCanNotBeKept(t *testing.T) {
	for args, want := range map[string]string{
		"--budget -1":                        "--budget is -1 dollars; it must be 0, for none, to a billion",
		"--budget 1e10":                      "it must be 0, for none, to a billion",
		"--budget NaN":                       "it must be 0, for none, to a billion",
		"--budget 5 --batch each":            "--budget and --batch each can't both decide",
		"--budget 5 --append-timeout 5s":     "--max-linger is 5s; it must be less than --append-timeout (5s)",
		"--max-linger 0s":                    "--max-linger is 0s; it must be greater than 0",
		"--budget 5 --prices none":           "the prices of this store are unknown",
		"--budget much":                      "--budget",
		"--budget 5 --linger 1h --prices s3": "--linger is 1h0m0s",
	} {
		got := runSeb(t, nil, append([]string{"serve", "--store", "memory:", "--http", "127.0.0.1:0"}, strings.Fields(args)...)...)
		if got.code != exitUsage || !strings.Contains(got.err, want) {
			t.Errorf("%s: exit code %d, %s", args, got.code, got.err)
		}
	}
}

// A broker on an S3 store whose prices are known says what its budget means. Without known prices it has none.
func TestBrokerSaysWhatItsBudgetMeans(t *testing.T) {
	store := s3test.Fake(t)
	b := serve(t, s3test.Env(), "--store", store, "--prices", "s3")
	banner := b.stdout.String()
	for _, want := range []string{
		"batch  timed: a commit 10ms after its first record if the budget allows it, else up to 5s after it, or at 4 MiB",
		"cost   $10 a month for the requests of all brokers (--budget): under sustained load a commit every 1.5 s; an idle broker sends none",
	} {
		if !strings.Contains(banner, want) {
			t.Errorf("the banner lacks %q:\n%s", want, banner)
		}
	}
	saysInMetrics(t, b, "seb_budget_dollars 10")
	saysInMetrics(t, b, "seb_budget_overdrawn_commits_total 0")
	begun := time.Now()
	runSeb(t, strings.NewReader("a\n"), "produce", "orders", "--server", b.url).want(t, exitOK)
	runSeb(t, strings.NewReader("b\n"), "produce", "orders", "--server", b.url).want(t, exitOK)
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("two appends on a quiet log took %v", took)
	}
	b.kill()

	b = serve(t, s3test.Env(), "--store", store)
	if banner := b.stdout.String(); strings.Contains(banner, "--budget") || !strings.Contains(banner, "at most 4 commits/s") {
		t.Errorf("the banner says\n%s", banner)
	}
}
