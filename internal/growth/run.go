package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// run gives a case its directories and brokers, and prints its figures.
type run struct {
	seb     string
	other   string // another version of seb, for one of several brokers; "" for none
	dir     string
	full    bool
	made    int
	brokers []*broker
}

// size returns how many things a case makes: full with the flag -full, else small.
func (r *run) size(small, full int) int {
	if r.full {
		return full
	}
	return small
}

// store returns a new empty directory, which is removed when the program ends.
func (r *run) store() (string, error) {
	r.made++
	dir := filepath.Join(r.dir, fmt.Sprint("store", r.made))
	return dir, os.Mkdir(dir, 0o700)
}

// serve starts a broker on a store, with the given flags in addition, and returns once the broker is ready.
// The broker is killed when the case ends.
func (r *run) serve(ctx context.Context, store string, flags ...string) (*broker, error) {
	return r.serveAs(ctx, r.seb, store, flags...)
}

// serveAs is serve with another seb command.
func (r *run) serveAs(ctx context.Context, seb, store string, flags ...string) (*broker, error) {
	b, err := startBroker(ctx, seb, store, flags...)
	if err == nil {
		r.brokers = append(r.brokers, b)
	}
	return b, err
}

func (r *run) killAll() {
	for _, b := range r.brokers {
		b.kill()
	}
	r.brokers = nil
}

// row prints one line of figures: what was measured, then each figure.
func (r *run) row(what string, figures ...string) {
	fmt.Printf("  %-44s %s\n", what, strings.Join(figures, "  "))
}

func mib(bytes int64) string { return fmt.Sprintf("%d MiB", bytes>>20) }

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
