package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/price"
)

// The values of --prices that name no provider.
const (
	pricesNone = "none"
	pricesOwn  = "own"
)

// pricesFlag is serve's --prices.
type pricesFlag struct {
	given  bool
	prices *price.List // nil: not known
}

// UnmarshalText reads the name of a provider, or three numbers.
func (f *pricesFlag) UnmarshalText(text []byte) error {
	f.given = true
	name := string(text)
	switch name {
	case pricesNone:
		return nil
	case pricesOwn:
		f.prices = &price.Own
		return nil
	}
	if f.prices = price.Named(name); f.prices != nil {
		return nil
	}
	numbers := strings.Split(name, ",")
	p := price.List{Name: "given", Of: "what --prices says"}
	if len(numbers) != 3 {
		return fmt.Errorf("invalid prices %q: write %s, %s, %s, or CLASS_A,CLASS_B,STORAGE in dollars, such as 5,0.4,0.023",
			name, strings.Join(price.Names(), ", "), pricesOwn, pricesNone)
	}
	for i, to := range []*float64{&p.ClassA, &p.ClassB, &p.Storage} {
		var err error
		if *to, err = strconv.ParseFloat(strings.TrimSpace(numbers[i]), 64); err != nil {
			return fmt.Errorf("invalid price %q in --prices: write dollars, such as 0.4", numbers[i])
		}
	}
	f.prices = &p
	return p.Check()
}

// of returns the store's prices: those of the flag, else those of the store's provider; nil if they are
// not known.
func (f pricesFlag) of(store objstore.Store) *price.List {
	if f.given {
		return f.prices
	}
	remote, ok := store.(interface{ Endpoint() string })
	if !ok {
		return &price.Own
	}
	return price.At(remote.Endpoint())
}
