package main

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/simple-event-broker/seb/httpapi"
	"github.com/simple-event-broker/seb/objstore"
)

// The values of --prices that name no provider.
const (
	pricesNone = "none"
	pricesOwn  = "own"
)

// provider is a storage provider whose prices are known.
type provider struct {
	prices httpapi.Prices
	host   string // suffix of the names of its servers
}

// amazon has the prices that apply if the store's URL names no endpoint.
var amazon = httpapi.Prices{Name: "s3", Of: "Amazon S3, Standard, us-east-1", AsOf: "2026-11", Source: "https://aws.amazon.com/s3/pricing/",
	ClassA: 5, ClassB: 0.4, Storage: 0.023, Note: "most other regions cost more; traffic to the internet costs extra"}

// providers have the list prices that docs/stores names, each with its source.
var providers = []provider{
	{amazon, "amazonaws.com"},
	{httpapi.Prices{Name: "r2", Of: "Cloudflare R2, Standard", AsOf: "2026-11", Source: "https://developers.cloudflare.com/r2/pricing/",
		ClassA: 4.5, ClassB: 0.36, Storage: 0.015, Note: "not subtracted: the free quota of an account, monthly 1 million of class A, 10 million of class B and 10 GB"}, "r2.cloudflarestorage.com"},
	{httpapi.Prices{Name: "tigris", Of: "Tigris, Standard", AsOf: "2026-06", Source: "https://www.tigrisdata.com/pricing/",
		ClassA: 5, ClassB: 0.5, Storage: 0.02, Note: "not subtracted: the free quota of an account"}, "t3.storage.dev"},
	{httpapi.Prices{Name: "hetzner", Of: "Hetzner Object Storage", AsOf: "2024-12", Source: "https://docs.hetzner.com/storage/object-storage/overview",
		Note: "no price per request is listed; the monthly base price, with 1 TB, comes on top"}, "your-objectstorage.com"},
}

// ownPrices are the prices of a directory, or of the user's own server.
var ownPrices = httpapi.Prices{Name: pricesOwn, Of: "no provider: disks of your own"}

// pricesFlag is serve's --prices.
type pricesFlag struct {
	given  bool
	prices *httpapi.Prices // nil: not known
}

// UnmarshalText reads the name of a provider, or three numbers.
func (f *pricesFlag) UnmarshalText(text []byte) error {
	f.given = true
	name := string(text)
	switch name {
	case pricesNone:
		return nil
	case pricesOwn:
		f.prices = &ownPrices
		return nil
	}
	names := []string{}
	for _, p := range providers {
		if p.prices.Name == name {
			f.prices = &p.prices
			return nil
		}
		names = append(names, p.prices.Name)
	}
	numbers := strings.Split(name, ",")
	p := httpapi.Prices{Name: "given", Of: "what --prices says"}
	if len(numbers) != 3 {
		return fmt.Errorf("invalid prices %q: write %s, %s, %s, or CLASS_A,CLASS_B,STORAGE in dollars, such as 5,0.4,0.023",
			name, strings.Join(names, ", "), pricesOwn, pricesNone)
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
func (f pricesFlag) of(store objstore.Store) *httpapi.Prices {
	if f.given {
		return f.prices
	}
	remote, ok := store.(interface{ Endpoint() string })
	if !ok {
		return &ownPrices
	}
	if remote.Endpoint() == "" {
		return &amazon
	}
	u, err := url.Parse(remote.Endpoint())
	if err != nil {
		return nil
	}
	for _, p := range providers {
		if strings.HasSuffix("."+strings.ToLower(u.Hostname()), "."+p.host) {
			return &p.prices
		}
	}
	return nil
}
