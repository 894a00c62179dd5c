//go:build !linux && !darwin

package main

// keepSignals does nothing: untilQuitKey reads Ctrl-C as a key here.
func keepSignals(int) error { return nil }
