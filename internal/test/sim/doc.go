// Package sim runs whole brokers, their HTTP servers and their clients over one
// bucket, in virtual time, while everything that can go wrong does, and checks
// what the clients saw.
//
// [Run] is one run. Its seed decides how many brokers and clients there are, how
// they are configured, what the clients do, and what befalls them: requests to
// the store that are slow, refused, executed without an answer, executed hours
// later or twice, answers that come back bent, throttled keys, outages;
// processes that are stopped for hours, crash before or after any store request
// and start again, with their cache, without it or with a damaged one; client
// connections that break in the middle of a request or an answer; and a deleter
// that removes whatever the log's rules allow to be removed.
//
// In one seed of eight the brokers reach the bucket through the S3 client, over
// HTTP. What befalls their requests then is what S3 and the network do: 409, 429,
// 500 and 503, silence, connections that break. A ledger compares what the
// client says with what it was told.
//
// Everything an operation's caller learned is in the history. It is checked
// against what the log holds in the end (SlotAgreement, AckDurable, NoPhantom,
// AtMostOnce, DenseOffsets, Order, Determinism, FloorSafe, LossIsLoud,
// Condition, StartAsAsked, TopicAsAsked, KeyAsAsked, ConsumerAsAsked,
// NothingPassed, QueueAsAsked, Fenced, OwnNumber, LastCounts, AtMost,
// NotBeforeDue, KeysInOrder, ParkedOnce, AllOrNothing, ExactlyOnce, Liveness), and
// for linearizability, each partition being an append-only register whose start moves up,
// and each consumer a register that the log says all values of.
//
// Some consumers are for doing everything with that can be done with one. Of each
// topic one is for workers: they commit only what they have done, and die in between;
// in the end no record may be there that none of them ever got.
//
// Other workers work on queues, by the library and by HTTP: they wait for records, stall
// beyond their leases, die with the work undone, answer late and twice, put records back, and do
// the work in one commit with what came of it; somebody else pauses the queues, purges them,
// redrives what is parked, deletes them and creates others of their name. The log says
// which deliveries there were and what became of each; that is followed record by record,
// without the fold of the brokers, and compared with what the workers were told. In the
// end all work that is left is done, and none may be missing. One queue is worked on by
// such commits alone, which are sent again when their outcome is unknown: of each
// record that is done exactly one thing was made.
//
// A seed decides everything but the order in which goroutines that are ready at
// the same instant run, and the brokers' random bytes; so a seed that fails
// usually fails again, but need not do so every time. Faults are drawn per link, verb and key, and not in the
// order in which requests happen to come, so that a small change of that order
// leaves the rest of the run as it was.
package sim
