package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/s3store"
)

// storeFlag has the flag for the store, for the commands that always open a store.
type storeFlag struct {
	Store string `default:"./seb-data" placeholder:"DIR|URL" help:"Where the log lives: a directory, s3://BUCKET/PREFIX?endpoint=URL&region=NAME, or memory: (default ${default})."`
	flag  string // the name of the flag for messages, if it is not --store
}

// name returns the name of the flag.
func (f storeFlag) name() string { return cmp.Or(f.flag, "--store") }

// errNoStore refuses an empty --store, such as that of a shell variable that is not set.
var errNoStore = usageError{hinted(errors.New("--store is empty, or the variable SEB_STORE is set and empty"),
	"name a directory or s3://BUCKET/PREFIX?endpoint=URL&region=NAME; or leave --store out, and unset SEB_STORE, for ./seb-data")}

// storeKind is the kind of a store; the default of --linger depends on it.
type storeKind int

const (
	kindDirectory storeKind = iota
	kindMemory
	kindS3
)

func (k storeKind) String() string {
	return [...]string{"directory", "memory, gone when the process ends", "S3"}[k]
}

// deleteDelay returns the default of --delete-delay for a new log. In a directory, commits cost nothing, so there may be hundreds of
// thousands an hour, each of them a file.
func (k storeKind) deleteDelay() time.Duration {
	if k == kindS3 {
		return 24 * time.Hour
	}
	return 4 * time.Hour
}

// isDirectory tells whether spec names a directory rather than a URL. s3//bucket is taken for a URL without its colon.
func isDirectory(spec string) bool {
	return !strings.HasPrefix(spec, "memory:") && !strings.HasPrefix(spec, "s3:") && !strings.HasPrefix(spec, "s3//") && !strings.Contains(spec, "://")
}

// kind returns the kind of the store.
func (f storeFlag) kind() storeKind {
	switch {
	case f.Store == "memory:":
		return kindMemory
	case strings.HasPrefix(f.Store, "s3:"):
		return kindS3
	default:
		return kindDirectory
	}
}

// openExisting opens the store for a command that only reads. It leaves a directory as it is; open would
// prepare it for a log.
func (f storeFlag) openExisting(ctx context.Context) (objstore.Store, error) {
	if f.Store == "" {
		return nil, errNoStore
	}
	if isDirectory(f.Store) {
		return objstore.OpenDirReadOnly(f.Store)
	}
	store, _, err := f.open(ctx)
	return store, err
}

// mustBeThere refuses a directory that does not exist: open would create it.
func (f storeFlag) mustBeThere() error {
	if f.Store == "" {
		return errNoStore
	}
	if !isDirectory(f.Store) {
		return nil
	}
	_, err := os.Stat(f.Store)
	if errors.Is(err, fs.ErrNotExist) {
		return codedError{hinted(fmt.Errorf("there is no directory %q", f.Store),
			"name the store of `seb serve` with --store"), exitRefused}
	}
	return err
}

// clusterKey is the key of an object that every log has from its beginning, see docs/format.md.
const clusterKey = "seb.json"

// mustHoldLog refuses a store without a log, in which a broker would create one. It writes nothing, and
// creates no directory.
func (f storeFlag) mustHoldLog(ctx context.Context) error {
	holds, err := f.holdsLog(ctx)
	if err == nil && !holds {
		return codedError{hinted(fmt.Errorf("there is no log in --store %s", f.Store),
			"name the store of `seb serve`; `seb key create --new-log` sets up a new one"), exitRefused}
	}
	return err
}

// holdsLogTimeout bounds the request that looks for a log.
const holdsLogTimeout = 90 * time.Second

func (f storeFlag) holdsLog(ctx context.Context) (bool, error) {
	store, err := f.openExisting(ctx)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, holdsLogTimeout)
		defer cancel()
		_, err = store.Get(ctx, clusterKey, 0, 1)
	}
	if errors.Is(err, objstore.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, f.advised(err)
}

// advised adds a hint to err if the store answered a request with an error that says nothing about the cause, or did
// not answer.
func (f storeFlag) advised(err error) error {
	if failure := objstore.FailureOf(err); f.kind() != kindS3 || failure == nil || failure.Hint != "" {
		return err
	}
	return hinted(err, fmt.Sprintf("check the endpoint, bucket and region in %s; `seb doctor --store '%s'` tests them", f.name(), f.Store))
}

// notOpened returns the error for a store, or for a log in it, that could not be opened because of err.
func (f storeFlag) notOpened(doing string, err error) error {
	if failure := objstore.SetupFailureOf(err); failure != nil {
		return fmt.Errorf("%s %s: %w", f.name(), f.Store, failure)
	}
	return f.advised(fmt.Errorf("%s %s: %w", doing, f.Store, err))
}

// open opens the store that the flag names, and creates a missing directory.
func (f storeFlag) open(ctx context.Context) (objstore.Store, storeKind, error) {
	switch {
	case f.Store == "memory:":
		return objstore.NewMemory(), kindMemory, nil
	case strings.HasPrefix(f.Store, "s3:"):
		if _, err := s3store.ParseURL(f.Store); err != nil {
			return nil, 0, usageError{hinted(fmt.Errorf("%s: %w", f.name(), err), "write s3://BUCKET/PREFIX?endpoint=URL&region=NAME, of which all but the bucket may be left out")}
		}
		store, err := s3store.Open(ctx, f.Store)
		if err != nil {
			return nil, kindS3, f.notOpened("open", err)
		}
		return store, kindS3, nil
	case !isDirectory(f.Store):
		return nil, 0, usage(fmt.Errorf("%s %s: use memory:, s3://BUCKET/PREFIX or a directory", f.name(), f.Store))
	}
	store, err := objstore.OpenDir(f.Store)
	if errors.Is(err, objstore.ErrNotRegular) {
		return nil, kindDirectory, hinted(err, "move it away; if a directory of the store was there before, restore that directory")
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return nil, kindDirectory, codedError{hinted(err, "make room on the disk of "+f.Store), exitUnreachable}
	}
	if err != nil {
		return nil, kindDirectory, hinted(err, "with "+f.name()+", name a directory that this user may create or write to")
	}
	return store, kindDirectory, nil
}
