// Package explore proves, within small bounds, that the log's decisions lose
// nothing. It drives the [commitlog.Protocol] that brokers run, not a second
// model of it, against a model of the store, without goroutines, clocks or I/O.
// [Explore] goes through every interleaving, breadth-first, and tells states apart
// by their canonical form. [Walk] takes random steps, at larger bounds.
// The package does the same for queues, see below.
//
// The faults: replies get lost or come late; a PUT, once sent, may
// execute at any later time, any number of times, also after its sender
// crashed; a broker stops between any two steps for any time, crashes and
// restarts; the store's clocks disagree; checkpoints appear at any time;
// deleters remove whatever the rules allow as soon as they allow it.
//
// What must hold is listed as [Invariant]. A [Rule] can be left out, to show that it is needed: then
// the exploration ends with the story of a violation. To leave out a rule of the Protocol itself, the
// driver gives the Protocol false input, with which it does what it would do without the rule.
//
// The driver of a broker mirrors Log.perform, and the loops that call it, step for
// step, with one simplification: what is local to a broker and can't fail (applying
// commits that were read) is done at once, since no other broker and no part of the
// store can tell when it happened. A crash before that is the same as a lost answer.
// The local clock can only shorten a lease, so it is not modelled as a clock: a
// lease is renewed early, and an answer counts as too late, whenever the exploration
// chooses so.
//
// # Data objects
//
// Brokers decide about data objects outside of the Protocol. So these parts are a model of what
// brokers do, without their code: the upload and its retries before the claim; the check against the
// floor, and another upload, whenever a commit is built; and which object a reader needs. No broker
// sweeps or deletes dead objects yet: the model does so by the rules of the design, at any time. A
// floor entry always sets its own slot as the floor: a higher floor would also forbid the data
// objects of uploads that begin right after that entry. The model assumes that no two uploads share
// a key. Here, too, the Protocol decides which slots and checkpoints exist.
//
// # Losses
//
// A store that breaks its promise may lose a slot above all checkpoints, or the
// newest checkpoint with everything that is in no other object ([Config.Losses]).
// Then only [LossIsLoud] and [Contiguity] hold. The other invariants can't hold, since
// the loss can stay unnoticed for some time:
//
//   - The newest slot is lost, and no living broker has seen a later one. A broker
//     that recovers then writes another commit there. A broker that had applied the
//     lost commit halts at its next List. If the slot has another commit by then, it
//     halts when it reads the next slot, whose prev does not fit.
//   - The newest slot is lost and gets another commit, as above, while the broker that had
//     applied the lost commit sleeps until its lease has ended. Then this broker loads a
//     checkpoint that covers the other commit. The checkpoint does not tell which commits
//     were in the slots below.
//   - A late PUT lands in a lost slot, although brokers know that the next slot exists.
//     A broker may read that late commit, and its sender may even acknowledge it. The
//     broker halts only when it reads the next slot, whose prev does not fit.
//   - A broker that has applied a lost slot claims the next slot before its next
//     List, and acknowledges. That List halts it, and every recovery halts at the
//     gap.
//   - All checkpoints and all slots are lost. For a broker that has not seen any of
//     them, this is an empty bucket.
//
// A lost data object stops no broker: reads of its records fail, and the Protocol
// does not learn of it.
//
// # Queues
//
// [QueueConfig.Explore] and [QueueConfig.Walk] assume a correct log, and check what is
// in it: which broker owns a queue, what is handed out, and which answers count.
// [state.State] and its Draft, the code that brokers run, decide which commits are valid.
// Every commit is encoded and decoded, and so is the snapshot of every state. What an
// owner keeps in memory is a model of the broker's dispatcher and of its leases.Table:
//
//   - mayHandOut (rule 1 of docs/rfcs/0002) models how far the dispatcher scans a partition;
//   - moveWindow models how the dispatcher moves the dispatch limit; the field lower is a lower limit
//     that the dispatcher has sent to the log, until it learns that the log has this limit;
//   - attempt (rule 2) models the dispatcher's claims; owes is the table's phase claiming;
//   - deadLetter models how records become dead letters;
//   - commit models the check of the epoch that every commit of an owner has;
//   - release models how a dispatcher ends (leaving);
//   - learn models that a dispatcher ends when the log has another owner;
//   - mayExtend models Table.Extend;
//   - ack and nack model answers, and the sync before them.
//
// A broker acts by the log as of its last sync, however old that is. This covers
// brokers that pause at any time for any time, lost owners that still hand out
// what they may, and late commits. A commit is checked against the end of the log, and
// is in the log at once. Lost races are left out, since after a lost race a broker only
// checks its commit again. The sender of a commit may learn the outcome later, or never
// ([QueueConfig.Late]). There is no time:
// leases end at any moment, queues are taken over without a reason, and backoff is 0.
// Only [LeaseKept] needs leases, so [QueueConfig.Leases] is off where it is not checked.
// Workers answer at any moment, late and twice. The model does not say through which
// broker a worker answers: all brokers decide by the log.
//
// A [QueueRule] that the fold enforces can be left out, too: then the driver commits what the fold
// would accept without the rule, such as a release in the name of a lost owner.
//
// The model has only one partition, and no delays, no order by key, and no changes of a queue's config.
//
// # Bounds
//
// This is no proof for larger bounds. It checks no bytes, and of the fold only the part for queues.
// States are told apart by hashes of 128 bits. A state leaves out what can no longer change anything:
// data objects that no broker can refer to, and acknowledgements that are known to be in the log (for
// these, [AckDurable] follows from [RecoverOK]).
package explore
