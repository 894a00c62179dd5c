// Package price knows what object stores charge, and what the requests of brokers cost. A [List] has the prices of a store. A
// [Budget] keeps what all brokers of a log spend on requests within dollars a month.
//
// Everything here is an estimate from list prices: the provider's bill is what counts.
package price

import (
	"fmt"
	"math"

	"github.com/simple-event-broker/seb"
)

// List has a store's prices in dollars, before taxes, discounts and free monthly allowances.
type List struct {
	Name   string `json:"name"`             // short, such as s3
	Of     string `json:"of"`               // the provider, and which of its products
	AsOf   string `json:"as_of,omitempty"`  // the month in which the prices were looked up, such as 2026-11
	Source string `json:"source,omitempty"` // where the prices were looked up

	ClassA  float64 `json:"class_a_per_million"`  // the price of a million PUT or LIST requests
	ClassB  float64 `json:"class_b_per_million"`  // the price of a million GET requests
	Storage float64 `json:"storage_per_gb_month"` // the price of storing 10^9 bytes for a month

	Sent     float64 `json:"sent_per_gb,omitempty"`     // the price of 10^9 bytes in PUT requests, in addition to that of the requests
	Received float64 `json:"received_per_gb,omitempty"` // the price of 10^9 bytes in the answers to GET requests

	Note string `json:"note,omitempty"` // other costs that a reader should know about
}

const dollarsMax = 1e6

// Check returns an error if a price is negative, not a number or above a million dollars.
func (l *List) Check() error {
	for _, price := range []float64{l.ClassA, l.ClassB, l.Storage, l.Sent, l.Received} {
		if math.IsNaN(price) || price < 0 || price > dollarsMax {
			return fmt.Errorf("a price is %v dollars: it must be from 0 to %d", price, int64(dollarsMax))
		}
	}
	return nil
}

// OfRequests returns what requests cost, in dollars. Requests that delete cost nothing.
func (l *List) OfRequests(u seb.StoreUse) float64 {
	return (float64(u.Creates+u.Lists)*l.ClassA+float64(u.Gets)*l.ClassB)/1e6 +
		(float64(u.SentBytes)*l.Sent+float64(u.ReceivedBytes)*l.Received)/1e9
}

// OfStorage returns what it costs to store that many bytes for a month, in dollars.
func (l *List) OfStorage(bytes int64) float64 { return float64(bytes) / 1e9 * l.Storage }
