// Growth measures how a broker behaves as the number of things that it holds or
// serves grows: topics, partitions, consumers, queues, pushes, commits, slow and hostile
// clients, and the number of brokers.
//
//	go run ./internal/growth                   every case, at sizes that take minutes
//	go run ./internal/growth -full topics      one case, at its full size
//	go run ./internal/growth -list             a list of all cases
//
// Growth builds the seb command and runs it as users do, as a separate process on a
// directory. It sends HTTP requests to that process, and prints figures, together with the
// version, the machine's cores, and the parameters of each case. It does not judge the figures.
// Compare only figures of one run, since a machine's speed changes from hour to hour.
//
// To add a case, write a file that is named after what grows. The file has a func of type
// [caseFunc], which starts brokers with run.serve and prints rows with run.row. Then add a line
// to the list in cases.go.
package main
