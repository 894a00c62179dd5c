package price_test

import (
	"fmt"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/price"
)

// A broker whose commits wait for money. Each broker of the bucket has the same budget, and a Budget of its own.
func ExampleNewBudget() {
	o := price.BudgetOptions{Dollars: 10, Prices: *price.Named("s3"), Linger: 10 * time.Millisecond, MaxLinger: 5 * time.Second, Bytes: 4 << 20}
	options := seb.Options{Batching: price.NewBudget(o)}
	fmt.Printf("%.2f commits a second\n", o.Rate())
	_ = options // for seb.Open
	// Output: 0.66 commits a second
}

// What a month of one PUT a second costs.
func ExampleList_OfRequests() {
	list := price.At("https://abc.r2.cloudflarestorage.com")
	fmt.Printf("%s: $%.2f\n", list.Of, list.OfRequests(seb.StoreUse{Creates: 30 * 24 * 3600}))
	// Output: Cloudflare R2, Standard: $11.66
}
