package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := runCases(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "growth:", err)
		os.Exit(1)
	}
}

func runCases(ctx context.Context) error {
	full := flag.Bool("full", false, "measure at full sizes")
	list := flag.Bool("list", false, "list the cases")
	binary := flag.String("seb", "", "the seb command to measure (default: build it from this tree)")
	other := flag.String("other", "", "another version of the seb command: one of the brokers of lost-brokers runs it (default: all run the same)")
	scratch := flag.String("dir", "", "where the brokers' directories are made, and removed again (default: the system's)")
	flag.Parse()
	if *list {
		for _, c := range cases {
			fmt.Printf("%-16s %s\n", c.name, c.about)
		}
		return nil
	}
	chosen, err := choose(flag.Args())
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(*scratch, "seb-growth-")
	if err != nil {
		return err
	}
	defer func() {
		if err := os.RemoveAll(dir); err != nil {
			fmt.Fprintln(os.Stderr, "growth:", err)
		}
	}()
	r := &run{dir: dir, full: *full, seb: *binary, other: *other}
	if r.seb == "" {
		r.seb = filepath.Join(dir, "seb")
		build := exec.CommandContext(ctx, "go", "build", "-o", r.seb, "github.com/simple-event-broker/seb/cmd/seb")
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("build seb: %w", err)
		}
	}
	version, err := exec.CommandContext(ctx, r.seb, "--version").Output()
	if err != nil {
		return fmt.Errorf("ask %s for its version: %w", r.seb, err)
	}
	fmt.Printf("%s%s, %d cores, full=%v, %s\n", version, runtime.Version(), runtime.NumCPU(), *full, revision())
	for _, c := range chosen {
		fmt.Printf("\n%s: %s\n", c.name, c.about)
		began := time.Now()
		err := c.run(ctx, r)
		r.killAll()
		if err != nil {
			return fmt.Errorf("case %s: %w", c.name, err)
		}
		fmt.Printf("  (%.0f s)\n", time.Since(began).Seconds())
	}
	return nil
}

// choose returns the cases with the names, or all cases if there are no names.
func choose(names []string) ([]growthCase, error) {
	if len(names) == 0 {
		return cases, nil
	}
	var chosen []growthCase
	for _, name := range names {
		i := slices.IndexFunc(cases, func(c growthCase) bool { return c.name == name })
		if i < 0 {
			return nil, errors.New("there is no case " + name + "; -list shows them")
		}
		chosen = append(chosen, cases[i])
	}
	return chosen, nil
}

// revision returns the commit from which this program was built, if Go has recorded it.
func revision() string {
	info, _ := debug.ReadBuildInfo()
	if info == nil {
		return "revision unknown"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return "revision " + s.Value
		}
	}
	return "revision unknown"
}
