// Package sim runs whole brokers, their HTTP servers and their clients over one
// bucket, in virtual time. It injects every fault that can occur, and checks
// what the clients saw.
//
// [Run] is one run. Its seed decides how many brokers and clients there are, how
// they are configured, what the clients do, and which faults occur: requests to
// the store that are slow, refused, executed without an answer, executed hours
// later or twice; damaged answers, throttled keys, outages;
// processes that are stopped for hours, crash before or after any store request
// and start again, with their cache, without it or with a damaged one; client
// connections that break in the middle of a request or an answer. A deleter
// removes whatever the log's rules allow.
//
// In one seed of 16 the brokers reach the bucket through the S3 client, over
// HTTP. Their requests then meet the faults of S3 and its network: 409, 429,
// 500 and 503, silence, connections that break. A ledger compares what the
// client reports with what the front end answered.
//
// The history has everything that an operation's caller learned. It is checked
// against what the log holds in the end (SlotAgreement, AckDurable, NoPhantom,
// AtMostOnce, DenseOffsets, Order, Determinism, FloorSafe, LossIsLoud,
// Condition, StartAsAsked, TopicAsAsked, KeyAsAsked, ConsumerAsAsked,
// NothingPassed, QueueAsAsked, Fenced, OwnNumber, LastCounts, AtMost,
// NotBeforeDue, DueInTime, KeysInOrder, ParkedOnce, AllOrNothing, ExactlyOnce, Liveness), and
// for linearizability: each partition is an append-only register whose start moves up,
// and each consumer a register whose values are all in the log.
//
// Clients use some consumers in every possible way. One consumer of each topic is for workers, which
// commit only records whose work they have done, and die at any point. In the end, each record that
// exists must have reached a worker.
//
// Other workers work on queues, by the library and by HTTP. They wait for records, stall beyond their
// leases, die with the work undone, answer late and twice, put records back, and commit
// acknowledgements together with the results of the work. Other clients pause, purge and delete
// queues, redrive dead letters, and create queues with names of deleted ones. The log tells which
// deliveries there were and what became of each. The checker follows these deliveries record by
// record, without the fold of the brokers, and compares them with the answers that the workers got. In
// the end the simulator does all work that is left, and checks that no record was left out. One queue
// is for exactly-once jobs: its workers only acknowledge together with their results, and repeat
// commits of unknown outcome. Each record that is done must have exactly one result.
//
// A seed decides everything but the order in which goroutines that are ready at
// the same instant run, and the brokers' random bytes. So a seed that fails
// usually fails again, but not always. Faults are drawn per link, verb and key, and not in the
// order in which requests happen to come, so that a small change of that order
// leaves the rest of the run as it was.
package sim
