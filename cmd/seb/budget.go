package main

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/price"
)

// budgetDefault is the default of --budget, in dollars a month, where PUTs have a price.
const budgetDefault = 10

// budgetFor returns the default of --budget for a store; 0 means no budget.
func budgetFor(kind storeKind, prices *price.List) float64 {
	if kind == kindS3 && prices != nil && prices.ClassA > 0 {
		return budgetDefault
	}
	return 0
}

// budget returns what the requests to a store may cost in a month; 0 means no budget. Without the flag, there is a default
// budget, unless another flag says when to commit.
func (c *serveCmd) budget(kind storeKind, prices *price.List) float64 {
	switch {
	case c.Budget != nil:
		return *c.Budget
	case c.Linger != nil || c.Batch != batchTimed:
		return 0
	default:
		return budgetFor(kind, prices)
	}
}

// checkBudget refuses a budget that can't be kept.
func (c *serveCmd) checkBudget() error {
	switch {
	case c.MaxLinger <= 0:
		return usage(fmt.Errorf("--max-linger is %v; it must be greater than 0", c.MaxLinger))
	case c.Budget == nil || *c.Budget == 0:
		return nil
	case !(*c.Budget > 0 && *c.Budget <= 1e9):
		return usage(fmt.Errorf("--budget is %v dollars; it must be 0, for none, to a billion", *c.Budget))
	case c.Batch != batchTimed:
		return usage(fmt.Errorf("--budget and --batch %s can't both decide when to commit: leave one of them out", c.Batch))
	case c.Linger != nil && *c.Linger > c.MaxLinger:
		return usage(fmt.Errorf("--linger is %v; with --budget it must be at most --max-linger (%v)", *c.Linger, c.MaxLinger))
	case c.MaxLinger >= c.AppendTimeout:
		return usage(fmt.Errorf("--max-linger is %v; it must be less than --append-timeout (%v), or writes end before their commit begins", c.MaxLinger, c.AppendTimeout))
	}
	return nil
}

// pace returns when a broker of the store commits, and the budget by which it does so; the budget is nil if commits don't depend on one.
func (c *serveCmd) pace(kind storeKind, prices *price.List, log *slog.Logger) (seb.Batching, *price.Budget, error) {
	dollars := c.budget(kind, prices)
	switch {
	case dollars == 0:
		return batching(c.Batch, c.linger(), c.CommitBytes), nil, nil
	case prices == nil:
		return nil, nil, usageError{hinted(errors.New("--budget needs the price of a PUT, and the prices of this store are unknown"), "set --prices, such as --prices 5,0.4,0.023")}
	case prices.ClassA == 0:
		log.Warn("PUTs cost nothing here, so --budget has no effect", "prices", prices.Of)
		return batching(c.Batch, c.linger(), c.CommitBytes), nil, nil
	}
	o := price.BudgetOptions{
		Dollars: dollars, Prices: *prices, Linger: c.budgetLinger(), MaxLinger: min(c.MaxLinger, c.AppendTimeout/2), Bytes: int64(c.CommitBytes), Logger: log,
	}
	if c.Budget != nil {
		o.MaxLinger = c.MaxLinger // less than --append-timeout: see checkBudget
	}
	budget := price.NewBudget(o)
	return budget, budget, nil
}

// budgetLinger returns how long a batch collects records while there is money.
func (c *serveCmd) budgetLinger() time.Duration {
	if c.Linger != nil {
		return *c.Linger
	}
	return lingerDirectory
}

// budgetCost says in words what a budget means.
func budgetCost(dollars float64, prices *price.List) string {
	o := price.BudgetOptions{Dollars: dollars, Prices: *prices}
	return fmt.Sprintf("$%v a month for the requests of all brokers (--budget): under sustained load a commit every %.2g s; an idle broker sends none", dollars, 1/o.Rate())
}
