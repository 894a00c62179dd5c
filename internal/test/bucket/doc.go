// Package bucket tests that brokers can use buckets that earlier versions of Seb wrote. A directory of testdata has
// such a bucket, and the text of what its brokers answered when they had written it.
package bucket
