package main

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/simple-event-broker/seb"
)

// keyring manages API keys, through a broker or in a store.
type keyring interface {
	create(ctx context.Context, opts seb.KeyOptions) (keyInfo, error)
	list(ctx context.Context) ([]keyInfo, error)
	revoke(ctx context.Context, id uint64) error
}

// keyringFlag chooses the keyring.
type keyringFlag struct {
	serverFlag
	// This flag is not read from the environment: SEB_STORE, which is meant for serve, must not make this
	// command bypass the broker.
	Store string `env:"-" placeholder:"DIR|URL" help:"Change the log in this store, without a broker: for the first key, or when you have no key left (default: ask the broker)."`
}

// with opens the keyring that the flags choose, and calls do. If create is false, the store of --store must
// have a log: otherwise a mistyped --store would get a new log.
func (f keyringFlag) with(ctx context.Context, create bool, do func(keyring) error) error {
	if f.Store == "" {
		broker, err := f.client()
		if err != nil {
			return err
		}
		return do(brokerKeys{broker})
	}
	if f.Store == "memory:" {
		return usage(errors.New("a log in memory (--store memory:) would be lost when this command ends; name a directory or s3://BUCKET/PREFIX"))
	}
	if !create {
		if err := (storeFlag{f.Store}).mustHoldLog(ctx); err != nil {
			return err
		}
	}
	store, _, err := storeFlag{f.Store}.open(ctx)
	if err != nil {
		return err
	}
	b, err := seb.Open(ctx, store, seb.Options{Batching: seb.Immediate()})
	if err != nil {
		return storeFlag{f.Store}.notOpened("open the log in", err)
	}
	return errors.Join(do(storeKeys{b}), b.Close())
}

type brokerKeys struct{ *client }

func (k brokerKeys) create(ctx context.Context, opts seb.KeyOptions) (created keyInfo, err error) {
	body := map[string]any{"name": opts.Name, "scopes": opts.Scopes.Names(), "topics": opts.Topics}
	if !opts.Expires.IsZero() {
		body["expires"] = opts.Expires.UTC().Format(time.RFC3339Nano)
	}
	_, err = k.call(ctx, http.MethodPost, k.url(nil, "keys"), body, &created)
	return created, err
}

func (k brokerKeys) list(ctx context.Context) ([]keyInfo, error) {
	return listAs[keyInfo](ctx, k.client, "keys", "keys")
}

func (k brokerKeys) revoke(ctx context.Context, id uint64) error {
	_, err := k.call(ctx, http.MethodDelete, k.url(nil, "keys", strconv.FormatUint(id, 10)), nil, nil)
	return err
}

type storeKeys struct{ broker *seb.Broker }

func (k storeKeys) create(ctx context.Context, opts seb.KeyOptions) (keyInfo, error) {
	created, secret, err := k.broker.CreateKey(ctx, opts)
	if err != nil {
		return keyInfo{}, err
	}
	info := infoOf(created)
	info.Key = secret
	return info, nil
}

func (k storeKeys) list(ctx context.Context) ([]keyInfo, error) {
	ks, err := seb.Collect(k.broker.Keys(ctx, 0))
	infos := make([]keyInfo, len(ks))
	for i := range ks {
		infos[i] = infoOf(ks[i])
	}
	return infos, err
}

func (k storeKeys) revoke(ctx context.Context, id uint64) error {
	_, err := k.broker.RevokeKey(ctx, seb.KeyID(id))
	return err
}

func infoOf(k seb.Key) keyInfo {
	info := keyInfo{ID: uint64(k.ID), Name: k.Name, Scopes: k.Scopes.Names(), Topics: k.Topics, Created: k.Created}
	if !k.Expires.IsZero() {
		info.Expires = &k.Expires
	}
	return info
}
