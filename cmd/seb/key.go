package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/httpapi"
)

type keyCmd struct {
	Create keyCreateCmd `cmd:"" help:"Create an API key and show it, once."`
	List   keyListCmd   `cmd:"" help:"List the API keys that are not revoked."`
	Revoke keyRevokeCmd `cmd:"" help:"Revoke an API key for good."`
}

// Help tells what keys are.
func (keyCmd) Help() string {
	return `A log without API keys is open to everyone who reaches a broker. So its brokers listen on loopback only, unless they
were started with --insecure. Once a key was created, requests need a key, for good; only /livez, /readyz,
/v1/version, /openapi.yaml and the page at / never need one. Keys are stored in the log: every broker of the bucket
knows them. With --store the log is changed without a broker. That creates the first key for a broker that other machines can
reach, and a new admin key when the last one is lost.`
}

type keyCreateCmd struct {
	keyringFlag
	outputFlag
	Name      string        `arg:"" help:"Name of the key. A client certificate of that name can be used instead of the key."`
	Scope     []string      `required:"" placeholder:"SCOPE" help:"What the key allows: read, write, metrics, admin (which includes the others); comma-separated."`
	Topic     []string      `default:"*" placeholder:"PATTERN" help:"Topics that the key allows: names, or the beginning of names and *; comma-separated (default: all)."`
	ExpiresIn time.Duration `placeholder:"DURATION" help:"How long the key is valid (default: until it is revoked)."`
	NewLog    bool          `help:"Create a log in --store if it holds none."`
}

// Help shows examples.
func (keyCreateCmd) Help() string {
	return `Examples:

    export SEB_API_KEY=$(seb key create ops --scope admin)
    seb key create shop --scope read,write --topic 'orders,orders.*' --expires-in 90d
    seb key create prometheus --scope metrics
    seb key create ops --scope admin --store 's3://bucket/prefix?region=eu-central-1' --new-log

With --store and --new-log the first key exists before the first broker. Standard output gets the key alone. Seb does
not store it: if you lose it, create another. The first key of a log must have the scope admin, for all topics; from
then on, requests without a key are refused.`
}

// Run creates a key.
func (c *keyCreateCmd) Run(ctx context.Context, std streams) error {
	scopes, err := seb.ParseScopes(c.Scope)
	if err != nil {
		return usage(fmt.Errorf("--scope: %w", err))
	}
	opts := seb.KeyOptions{Name: c.Name, Scopes: scopes, Topics: c.Topic}
	if c.ExpiresIn < 0 {
		return usage(fmt.Errorf("invalid --expires-in %v: it must not be negative", c.ExpiresIn))
	}
	if c.NewLog && c.Store == "" {
		return usage(errors.New("--new-log needs --store"))
	}
	if c.ExpiresIn > 0 {
		opts.Expires = time.Now().Add(c.ExpiresIn)
	}
	var k seb.Key
	var secret string
	err = c.with(ctx, c.NewLog, func(keys keyring) (err error) {
		k, secret, err = keys.CreateKey(ctx, opts)
		return err
	})
	if err != nil {
		return fmt.Errorf("create key %s: %w", c.Name, err)
	}
	if k.ID == 1 {
		defer c.tellOfFirst(std)
	}
	if c.json() {
		err = printJSON(std.out, httpapi.KeyJSON(k, secret))
	} else {
		until := "never expires"
		if !k.Expires.IsZero() {
			until = "expires " + k.Expires.UTC().Format(time.RFC3339)
		}
		note(std.err, "key %d, %s, for %s of %s, %s; the key is not shown again\n",
			k.ID, k.Name, k.Scopes, strings.Join(k.Topics, ","), until)
		_, err = fmt.Fprintln(std.out, secret)
	}
	if err != nil {
		return hinted(err, fmt.Sprintf("the key exists, but was not shown: revoke it with `seb key revoke %d`, and create another", k.ID))
	}
	return nil
}

// tellOfFirst tells what the first key of a log changes for everyone.
func (c *keyCreateCmd) tellOfFirst(std streams) {
	note(std.err, "This is the first key of the log: from now on all brokers of the log refuse requests without a key, even if you revoke it.\n"+
		"Give the key to seb as SEB_API_KEY, or with --api-key-file. If you lose it, create another with %s\n", c.wayBackIn())
}

type keyListCmd struct {
	keyringFlag
	outputFlag
}

// Help shows examples.
func (keyListCmd) Help() string {
	return `Examples:

    seb key list
    seb key list --store ./seb-data
    seb key list --output json | jq -r '.keys[].name'`
}

// Run prints a line per key.
func (c *keyListCmd) Run(ctx context.Context, std streams) error {
	var ks []seb.Key
	err := c.with(ctx, false, func(keys keyring) (err error) {
		ks, err = seb.Collect(keys.Keys(ctx, 0))
		return err
	})
	if err != nil {
		return fmt.Errorf("list keys: %w", err)
	}
	if c.json() {
		describe := func(k seb.Key) json.RawMessage { return httpapi.KeyJSON(k, "") }
		return printJSON(std.out, map[string]any{"keys": each(ks, describe)})
	}
	out := newPrinter(std.out)
	out.table(func(row *printer) {
		row.printf("ID\tNAME\tSCOPES\tTOPICS\tCREATED\tEXPIRES\n")
		for _, k := range ks {
			until := "never"
			if !k.Expires.IsZero() {
				until = k.Expires.UTC().Format(time.RFC3339)
			}
			row.printf("%d\t%s\t%s\t%s\t%s\t%s\n", k.ID, k.Name, k.Scopes, strings.Join(k.Topics, ","),
				k.Created.UTC().Format(time.RFC3339), until)
		}
	})
	return out.err
}

type keyRevokeCmd struct {
	keyringFlag
	outputFlag
	confirmFlag
	Key string `arg:"" name:"id" help:"Id or name of the key."`
}

// Help shows examples.
func (keyRevokeCmd) Help() string {
	return `Examples:

    seb key revoke 7
    seb key revoke shop

Every broker refuses the key within its --stale-max (1 s), and ends the requests of the key as soon as it knows.
URLs signed with it become invalid. If you revoke the last key that can manage keys (scope admin, for all topics), no
request can make a new one; seb key create --store can: see seb key --help. On a terminal, seb asks before it does that,
and also if all other such keys expire within a day.`
}

// Run revokes the key.
func (c *keyRevokeCmd) Run(ctx context.Context, std streams) error {
	var was seb.Key
	var others managers
	err := c.with(ctx, false, func(keys keyring) (err error) {
		was, others, err = findKey(ctx, keys, c.Key)
		if err != nil {
			return err
		}
		if question := others.question(was); question != "" {
			if err := c.confirm(ctx, std, question); err != nil {
				return err
			}
		}
		_, err = keys.RevokeKey(ctx, was.ID)
		return err
	})
	if err != nil {
		return fmt.Errorf("revoke key %s: %w", c.Key, err)
	}
	if managesKeys(was, time.Now()) && others.now == 0 {
		note(std.err, "no key is left that can manage keys; to create one, use %s\n", c.wayBackIn())
	}
	if c.json() {
		return printJSON(std.out, map[string]any{"id": was.ID, "name": was.Name, "revoked": true})
	}
	_, err = fmt.Fprintf(std.out, "key %d, %s, revoked\n", was.ID, was.Name)
	return err
}

// soon is how long a key must still be valid to count as a replacement for a revoked key.
const soon = 24 * time.Hour

// managers are the numbers of keys that can manage keys now, and that still can when soon has passed.
type managers struct{ now, later int }

// question asks whether to revoke k if no other key, or none for long, can manage keys; otherwise it is "".
func (others managers) question(k seb.Key) string {
	switch {
	case !managesKeys(k, time.Now()) || others.later > 0:
		return ""
	case others.now > 0:
		return fmt.Sprintf("Revoke %s? All other keys that can manage keys expire within a day.", k.Name)
	}
	return fmt.Sprintf("Revoke %s, the last key that can manage keys?", k.Name)
}

// findKey returns an API key by its id if which is a number, else by its name, and how many others can manage keys.
func findKey(ctx context.Context, keys keyring, which string) (found seb.Key, others managers, _ error) {
	id, notID := strconv.ParseUint(which, 10, 64)
	var all []seb.Key
	for k, err := range keys.Keys(ctx, 0) {
		if err != nil {
			return k, others, err
		}
		if notID == nil && uint64(k.ID) == id || notID != nil && k.Name == which {
			found = k
		}
		all = append(all, k)
	}
	if found.ID == 0 {
		return found, others, codedError{hinted(fmt.Errorf("there is no API key %q", which), "`seb key list` lists all keys"), exitRefused}
	}
	for _, k := range all {
		if k.ID != found.ID && managesKeys(k, time.Now()) {
			others.now++
		}
		if k.ID != found.ID && managesKeys(k, time.Now().Add(soon)) {
			others.later++
		}
	}
	return found, others, nil
}

// managesKeys tells whether the key can create and revoke keys at a time of the clock of this machine.
func managesKeys(k seb.Key, at time.Time) bool {
	return k.Scopes&seb.ScopeAdmin != 0 && slices.Contains(k.Topics, "*") && (k.Expires.IsZero() || k.Expires.After(at))
}
