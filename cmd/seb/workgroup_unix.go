//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// checkGroups returns an error if the system has no process groups.
func checkGroups() error { return nil }

// inGroup makes cmd run in its own process group.
func inGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// signalGroup sends a signal to the process group that the process leads.
func signalGroup(leader int, s syscall.Signal) error { return syscall.Kill(-leader, s) }
