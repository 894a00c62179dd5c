package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/simple-event-broker/seb"
)

type upgradeCmd struct{ storeFlag }

// Help shows an example.
func (upgradeCmd) Help() string {
	return fmt.Sprintf(`Examples:

    seb upgrade
    seb upgrade --store 's3://bucket/prefix?region=eu-central-1'

Raises the level of the log's format to %d, which this version of seb writes. From level 6 on, brokers merge records into
larger objects, and delete objects that the log no longer needs. Brokers of an earlier version stop when they read that
commit, and refuse the log from then on; the level can't be lowered. So upgrade all brokers first. The limits
that topics have by now (--retention, --retention-bytes) delete nothing until somebody sets them again.

Brokers raise the level by themselves, after an hour with at least 1,000 commits in which all brokers knew the next level and none
had --hold-format. This command does it at once, whatever they know. Brokers may run meanwhile. It does nothing if the log has
the level already.`, seb.FormatLevel)
}

// Run raises the level of a log.
func (c *upgradeCmd) Run(ctx context.Context, std streams) error {
	if c.Store == "memory:" {
		return usage(errors.New("a log in memory (--store memory:) is new in each process; name a directory or s3://BUCKET/PREFIX"))
	}
	if err := c.mustHoldLog(ctx); err != nil {
		return err
	}
	store, _, err := c.open(ctx)
	if err != nil {
		return err
	}
	b, err := seb.Open(ctx, store, seb.Options{Batching: seb.Immediate(), RaiseFormat: true})
	if err != nil {
		return c.notOpened("upgrade the log in", err)
	}
	p := newPrinter(std.out)
	p.printf("the log in %s has level %d\n", c.Store, seb.FormatLevel)
	return errors.Join(p.err, b.Close())
}
