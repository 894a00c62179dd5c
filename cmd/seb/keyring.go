package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/simple-event-broker/seb"
)

// keyring manages API keys, through a broker or in a store.
type keyring interface {
	CreateKey(ctx context.Context, opts seb.KeyOptions) (k seb.Key, secret string, err error)
	Keys(ctx context.Context, after seb.KeyID) iter.Seq2[seb.Key, error]
	RevokeKey(ctx context.Context, id seb.KeyID) (seb.Key, error)
}

// keyringFlag chooses the keyring.
type keyringFlag struct {
	serverFlag
	// This flag is not read from the environment: SEB_STORE, which is meant for serve, must not make this
	// command bypass the broker.
	Store string `env:"-" placeholder:"DIR|URL" help:"Change the log in this store, without a broker: for the first key, or when you have no key left (default: ask the broker)."`
}

// wayBackIn is the command that creates a key for somebody who has none.
func (f keyringFlag) wayBackIn() string {
	return fmt.Sprintf("`seb key create NAME --scope admin --store %s`", cmp.Or(f.Store, "STORE"))
}

// with opens the keyring that the flags choose, and calls do. If create is false, the store of --store must
// have a log: otherwise a mistyped --store would get a new log.
func (f keyringFlag) with(ctx context.Context, create bool, do func(keyring) error) error {
	if f.Store == "" {
		broker, err := f.client()
		if err != nil {
			return err
		}
		return unsure(do(broker), "`seb key list` (with --store if you have no other key), and revoke a key that was created but never shown,")
	}
	if f.Store == "memory:" {
		return usage(errors.New("a log in memory (--store memory:) would be lost when this command ends; name a directory or s3://BUCKET/PREFIX"))
	}
	if !create {
		if err := (storeFlag{Store: f.Store}).mustHoldLog(ctx); err != nil {
			return err
		}
	}
	store, _, err := storeFlag{Store: f.Store}.open(ctx)
	if err != nil {
		return err
	}
	b, err := seb.Open(ctx, store, seb.Options{Batching: seb.Immediate(), Cluster: seb.ClusterOptions{DeleteDelay: storeFlag{Store: f.Store}.kind().deleteDelay()}})
	if err != nil {
		return storeFlag{Store: f.Store}.notOpened("open the log in", err)
	}
	return errors.Join(do(b), b.Close())
}
