package main

import (
	"fmt"
	"time"

	"github.com/simple-event-broker/seb"
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

// linger is how long a timed batch gathers unless told otherwise: a directory
// costs nothing but fsyncs, S3 money per request.
func (k storeKind) linger() time.Duration {
	if k == kindS3 {
		return lingerS3
	}
	return lingerDirectory
}

// cost says in words what the commits of a busy month cost at worst.
func (k storeKind) cost(batch string, linger time.Duration) string {
	const idle = "; an idle broker sends none"
	dollarsPerMillionPuts := amazon.ClassA // others ask less
	switch {
	case k != kindS3:
		return "no request fees"
	case batch == batchTimed && linger > 0:
		perSecond := 1 / linger.Seconds()
		return fmt.Sprintf("at most %.3g commits/s, $%.0f a month at $%.0f per million PUTs%s",
			perSecond, perSecond*secondsPerMonth/1e6*dollarsPerMillionPuts, dollarsPerMillionPuts, idle)
	case batch == batchEach:
		return fmt.Sprintf("a PUT per append, $%.0f per million%s", dollarsPerMillionPuts, idle)
	default:
		return fmt.Sprintf("while records come a PUT whenever the last one ends; at 20/s that is $%.0f a month%s",
			20*secondsPerMonth/1e6*dollarsPerMillionPuts, idle)
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
