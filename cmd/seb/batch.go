package main

import (
	"fmt"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/price"
)

// The values of serve's --batch.
const (
	batchTimed     = "timed"
	batchImmediate = "immediate"
	batchEach      = "each"
)

const (
	lingerDirectory = 10 * time.Millisecond
	lingerS3        = 250 * time.Millisecond

	secondsPerMonth = 30 * 24 * 3600
)

// linger returns the default of --linger for a store. On S3 each commit costs money; in a directory it costs
// only fsyncs, so the default there is shorter.
func (k storeKind) linger() time.Duration {
	if k == kindS3 {
		return lingerS3
	}
	return lingerDirectory
}

// costOf says in words what the commits of a busy month cost at worst. If prices is nil, they are not known.
func costOf(batch string, linger time.Duration, prices *price.List) string {
	const idle = "; an idle broker sends none"
	timed := batch == batchTimed && linger > 0
	perSecond := 1 / linger.Seconds()
	if prices == nil {
		const unknown = idle + "; the prices of this store are unknown: see seb serve --prices"
		switch {
		case timed:
			return fmt.Sprintf("at most %.3g commits/s, %.3g million PUTs a month%s", perSecond, perSecond*secondsPerMonth/1e6, unknown)
		case batch == batchEach:
			return "a PUT per append" + unknown
		default:
			return "while records come, one PUT after another" + unknown
		}
	}
	price := fmt.Sprintf("$%v per million", prices.ClassA)
	month := func(perSecond float64) float64 { return perSecond * secondsPerMonth / 1e6 * prices.ClassA }
	switch {
	case prices.ClassA == 0:
		return "no request fees"
	case timed:
		return fmt.Sprintf("at most %.3g commits/s, $%.0f a month at %s PUTs%s", perSecond, month(perSecond), price, idle)
	case batch == batchEach:
		return fmt.Sprintf("a PUT per append, %s%s", price, idle)
	default:
		return fmt.Sprintf("while records come, one PUT after another; 20 PUTs/s at %s cost $%.0f a month%s", price, month(20), idle)
	}
}

// batching returns the strategy that the flags name.
func batching(batch string, linger time.Duration, commitBytes size) seb.Batching {
	switch batch {
	case batchImmediate:
		return seb.Immediate()
	case batchEach:
		return seb.Each()
	default:
		return seb.Timed(linger, int64(commitBytes))
	}
}
