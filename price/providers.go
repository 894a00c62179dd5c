package price

import (
	"net/url"
	"strings"
)

// Own has the prices of a directory, or of the user's own server.
var Own = List{Name: "own", Of: "no provider: disks of your own"}

var amazon = List{
	Name: "s3", Of: "Amazon S3, Standard, us-east-1", AsOf: "2026-11", Source: "https://aws.amazon.com/s3/pricing/",
	ClassA: 5, ClassB: 0.4, Storage: 0.023, Note: "most other regions cost more; traffic to the internet costs extra",
}

// provider is a storage provider whose prices are known.
type provider struct {
	list List
	host string // suffix of the names of its servers
	zone string // prefix of the first label of these names, if another product has the same suffix
}

// providers are in the order in which a server's name is compared with them. Stores that charge for objects which are deleted early
// are not among them.
var providers = []provider{
	{list: List{
		Name: "s3-express", Of: "Amazon S3, Express One Zone, us-east-1", AsOf: "2025-04", Source: "https://aws.amazon.com/s3/faqs/",
		ClassA: 1.13, ClassB: 0.03, Storage: 0.11, Sent: 0.0032, Received: 0.0006, Note: "most other regions cost more; Seb does not run on directory buckets, since these list keys in no order",
	}, host: "amazonaws.com", zone: "s3express-"},
	{list: amazon, host: "amazonaws.com"},
	{list: List{
		Name: "r2", Of: "Cloudflare R2, Standard", AsOf: "2026-11", Source: "https://developers.cloudflare.com/r2/pricing/",
		ClassA: 4.5, ClassB: 0.36, Storage: 0.015, Note: "not subtracted: the free quota of an account, monthly 1 million of class A, 10 million of class B and 10 GB",
	}, host: "r2.cloudflarestorage.com"},
	{list: List{
		Name: "tigris", Of: "Tigris, Standard", AsOf: "2026-06", Source: "https://www.tigrisdata.com/pricing/",
		ClassA: 5, ClassB: 0.5, Storage: 0.02, Note: "not subtracted: the free quota of an account",
	}, host: "t3.storage.dev"},
	{list: List{
		Name: "hetzner", Of: "Hetzner Object Storage", AsOf: "2024-12", Source: "https://docs.hetzner.com/storage/object-storage/overview",
		Note: "no price per request is listed; the monthly base price, with 1 TB, comes on top",
	}, host: "your-objectstorage.com"},
	{list: List{
		Name: "gcs", Of: "Google Cloud Storage, Standard, us-central1", AsOf: "2026-09", Source: "https://cloud.google.com/storage/pricing",
		ClassA: 5, ClassB: 0.4, Storage: 0.02, Note: "some other regions cost more; traffic to the internet costs extra; not subtracted: the free quota of an account",
	}, host: "storage.googleapis.com"},
}

// Names returns the names of all lists of providers.
func Names() (names []string) {
	for _, p := range providers {
		names = append(names, p.list.Name)
	}
	return names
}

// Named returns the list of a provider; nil if no list has that name.
func Named(name string) *List {
	for _, p := range providers {
		if p.list.Name == name {
			return &p.list
		}
	}
	return nil
}

// At returns the prices of the S3 server at a URL; nil if they are not known. If the URL is empty, that server is Amazon's.
func At(endpoint string) *List {
	if endpoint == "" {
		return &amazon
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil
	}
	host := strings.ToLower(u.Hostname())
	for _, p := range providers {
		if strings.HasSuffix("."+host, "."+p.host) && strings.HasPrefix(host, p.zone) {
			return &p.list
		}
	}
	return nil
}
