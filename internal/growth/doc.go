// Growth measures how a broker behaves as the number of things that it holds or
// serves grows: topics, partitions, consumers, queues, pushes, commits, slow clients.
//
//	go run ./internal/growth                   every case, at sizes that take minutes
//	go run ./internal/growth -full topics      one case, at its full size
//	go run ./internal/growth -list             a list of all cases
//
// It builds the seb command, runs it as its users do, as a separate process on a
// directory, and sends it HTTP requests. It prints figures, with the version, the machine's
// cores, and each case's parameters, and does not judge them. Compare only figures of
// one run, since a machine's speed changes from hour to hour.
//
// To add a case: write a file that is named after what grows, with a func of type
// [caseFunc] that starts brokers with run.serve and prints rows with run.row; then
// add a line to the list in cases.go.
package main
