//go:build !unix

package main

import (
	"errors"
	"os/exec"
	"syscall"
)

var errNoGroups = errors.New("seb work needs process groups, which this system does not have: " +
	"run it on Linux or macOS, or write a worker with the HTTP API, or let the broker push the records to a URL")

// checkGroups returns an error: without process groups, seb work could not end the processes of a command whose
// lease is lost.
func checkGroups() error { return errNoGroups }

func inGroup(*exec.Cmd) {}

func signalGroup(int, syscall.Signal) error { return errNoGroups }
