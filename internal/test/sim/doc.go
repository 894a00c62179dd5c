// Package sim runs whole brokers, their HTTP servers and their clients over one bucket, in virtual time. It
// injects faults, and checks what the clients saw.
//
// [Run] is one run. Its seed decides how many brokers and clients there are, how
// they are configured, what the clients do, and which faults occur: requests to
// the store that are slow, refused, executed without an answer, executed hours
// later or twice; damaged answers, throttled keys, outages;
// processes that are stopped for hours; processes that crash before or after any
// store request and start again, with a cache on disk that is intact, damaged or
// gone; client connections that break in the middle of a request or an answer;
// connections between brokers that break or are slow. A goroutine deletes all
// objects that the log's rules allow a broker to delete.
//
// For one seed in 16, the brokers reach the bucket through the S3 client, over HTTP. Between that client and
// the bucket there is then a small S3 server (type front). It answers with the faults of S3 and its network:
// 409, 429, 500 and 503, silence, connections that break. A ledger compares what the S3 client reports with
// what this server answered.
//
// In this package, a node is a machine, and a life is one run of a broker on a node. A link carries the
// requests of one life to the store. A move is a change of the positions of a consumer.
//
// The history has every operation of every client, with everything that the client learned from the answer.
// The checker compares the history with what the log holds in the end (SlotAgreement, AckDurable, NoPhantom,
// AtMostOnce, DenseOffsets, Order, Determinism, FloorSafe, LossIsLoud, Condition, StartAsAsked,
// TopicAsAsked, KeyAsAsked, ConsumerAsAsked, NothingPassed, QueueAsAsked, Fenced, OwnNumber, LastCounts,
// AtMost, NotBeforeDue, DueInTime, KeysInOrder, ParkedOnce, AllOrNothing, ExactlyOnce, Liveness). It also
// checks linearizability: each partition is an append-only register whose start moves up, and each consumer
// is a register whose values are all in the log. Some clients take cuts of topics, and append on condition that nothing came since; the
// log tells whether the conditions held.
//
// Clients use some consumers in every possible way. One consumer of each topic is for workers. They commit
// only records whose work they have done, and die at any point. In the end, each record that exists must
// have reached a worker.
//
// Other workers work on queues, through the library and over HTTP. They wait for records, stall beyond their
// leases, die with the work undone, answer late and twice, put records back, and commit acknowledgements
// together with the results of the work. Other clients pause, purge and delete queues, redrive dead letters,
// and create queues with the names of deleted queues. The log tells which deliveries there were and what
// became of each delivery. The checker follows the deliveries of each record with code that is not the
// brokers' fold, and compares these deliveries with the answers that the workers got. In the end the
// simulator does all work that is left, and checks that no record was left out. One queue is for
// exactly-once jobs: its workers acknowledge a record only in the commit that also appends the result of the
// work, and repeat commits of unknown outcome. Each record that is done must have exactly one result.
//
// A seed decides everything except the order in which goroutines that are ready at the same instant run, and
// the brokers' random bytes. So a seed that fails usually fails again, but not always. Which fault a request
// meets depends on the link, the verb and the key of the request, and on how many such requests came before.
// So if two requests change places, the rest of the run usually stays as it was.
package sim
