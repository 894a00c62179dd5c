// Package explore proves, within small bounds, that the log's decisions lose
// nothing. It drives the [commitlog.Protocol] that brokers run, not a second
// model of it, against a model of the store, without goroutines, clocks or I/O:
// through every interleaving, breadth-first, with the states told apart by
// their canonical form ([Explore]); or along random ones at larger bounds ([Walk]).
// It does the same for queues, see below.
//
// The faults: replies get lost or come late; a PUT, once sent, may
// execute at any later time, any number of times, also after its sender
// crashed; a broker stops between any two steps for any time, crashes and
// restarts; the store's clocks disagree; checkpoints appear at any time;
// deleters remove whatever the rules allow as soon as they allow it.
//
// What must hold is listed as [Invariant]. A [Rule] can be taken out, to show
// that it is needed: then the exploration ends with the story of a violation.
// The driver takes out rules of the Protocol itself by telling the Protocol
// what it would believe if it did not ask.
//
// A broker's driver here mirrors perform and the loops above it in the commit
// log, step for step, with one simplification: what is local to a broker and
// can't fail (applying what is in hand) is done at once, since no other broker
// and no part of the store can tell when it happened. A crash before it is the
// same as an answer that was lost. The local clock may only shorten a lease, so
// it is not modelled as a clock: a lease is renewed early, and an answer counts
// as too late, whenever the exploration chooses so.
//
// # Data objects
//
// Brokers decide about data objects outside of the Protocol, so these parts are
// a model of what they do, without their code: the upload and its retries
// before the claim; the check against the floor, and another upload, whenever a
// commit is built; which object a reader needs. No broker sweeps or deletes dead
// objects yet: the model follows the rules of the design, at any time. A floor is
// always that of its own slot, the highest
// that leaves writers a key. The model assumes that no two uploads share a key.
// The Protocol decides here too which slots and checkpoints exist.
//
// # Losses
//
// A store that breaks its promise may lose a slot above all checkpoints, or the
// newest checkpoint with what only it holds ([Config.Losses]). What holds then
// is what [LossIsLoud] and [Contiguity] say. The rest can't hold, and nothing
// can notice:
//
//   - The newest slot is lost, and no living broker has seen a later one: a broker
//     that recovers then writes another commit there. A broker that had applied the
//     lost one halts at its next List or, if the slot has another commit by then,
//     when it reads the next slot, whose prev does not fit.
//   - The same, and that broker sleeps until its lease has ended: it loads the
//     other history's checkpoint, which says nothing about the slots below it.
//   - A late PUT lands in a lost slot that is known to have a successor: it is
//     read, and may even be acknowledged by its sender, before the successor
//     shows that it does not fit, and halts the broker.
//   - A broker that has applied a lost slot claims the one after it before its
//     next List, and acknowledges. That List halts it, and every recovery halts
//     at the gap.
//   - All checkpoints are lost, and all slots: that is an empty bucket to a broker
//     that has not seen more.
//
// A lost data object stops no broker: reads of its records fail, and the Protocol
// does not learn of it.
//
// # Queues
//
// [QueueConfig.Explore] and [QueueConfig.Walk] take a correct log for granted, and check
// what is in it: which broker owns a queue, what is handed out, and which answers count.
// [state.State] and its Draft, the code that brokers run, decide which commits the log takes.
// Every commit goes through the bytes of a commit and of a snapshot. What an owner does by its
// memory is a model of the broker's dispatcher and of its leases.Table:
//
//   - mayHandOut (rule 1 of docs/rfcs/0002) models how far the dispatcher reads a partition,
//     and moveWindow how it moves the dispatch limit back; lower is that limit;
//   - attempt (rule 2) models the dispatcher's claims; owes is the table's claiming;
//   - deadLetter models dead-lettering, and commit the check of the epoch that every commit
//     of an owner asks for;
//   - release models how a dispatcher is closed (leaving);
//   - learn models that a dispatcher closes when the log has another owner;
//   - mayExtend models Table.Extend; ack and nack model answers, and the sync before them.
//
// A broker acts by the log as of its last sync, however old that is. This includes
// brokers that pause at any time for any time, lost owners that still hand out
// what they may, and late commits. A commit is checked at the end of the log and is
// there at once, since a lost race only means that it is checked again; its sender learns of
// it later, or never ([QueueConfig.Late]). There is no time: leases end at any moment,
// queues are taken over without a reason, and backoff is 0. Only
// [LeaseKept] needs leases, so they are left out where it is not checked
// ([QueueConfig.Leases]). Workers answer at any moment, late and twice. The model does not
// distinguish through which broker: all of them ask the log.
//
// A [QueueRule] that stands in the fold is taken out around it, too: the driver commits
// what the fold would take if it did not ask, such as a release in the name of an owner
// that was lost.
//
// Left out: partitions, delays, order by key, and changes of a queue's config.
//
// # Bounds
//
// It is not a proof for other bounds. It does not check bytes, or the fold of
// anything but queues.
// States are told apart by hashes of 128 bits. A state leaves out what can no longer
// change anything: a data object that no broker can refer to, and
// acknowledgements that are known to be in the log
// ([AckDurable] follows from [RecoverOK] then).
package explore
