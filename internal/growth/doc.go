// Growth measures how a broker behaves as the number of things that it holds or
// serves grows: topics, partitions, consumers, queues, pushes, commits, slow clients.
//
//	go run ./internal/growth                   every case, at sizes that take minutes
//	go run ./internal/growth -full topics      one case, at its full size
//	go run ./internal/growth -list             what cases there are
//
// It builds the seb command, runs it as its users do, as a process of its own on a
// directory, and speaks HTTP with it. It judges nothing: it prints figures, with the
// version, the machine's cores, and each case's parameters. Compare figures of one
// run only, since machines differ from hour to hour.
//
// To add a case: write one file that is named for what grows, with a func of type
// [caseFunc] that starts brokers with run.serve, and prints rows with run.row; then
// add a line to the list in cases.go.
package main
