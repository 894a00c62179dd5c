// Package cputime tells how long a process has used processors: on a busy machine, the time on the clock says little about how fast
// code is. It is for benchmarks.
package cputime
