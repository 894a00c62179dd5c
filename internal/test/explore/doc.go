// Package explore proves, within small bounds, that the log's decisions lose
// nothing. It drives the [commitlog.Protocol] that brokers run, not a second
// model of it, against a model of the store, without goroutines, clocks or I/O:
// through every interleaving, breadth-first, with the states told apart by
// their canonical form ([Explore]); or along random ones at larger bounds ([Walk]).
// It does the same for queues, see below.
//
// What may go wrong: replies get lost or come late; a PUT, once sent, may
// execute at any later time, any number of times, also after its sender
// crashed; a broker stops between any two steps for any time, crashes and
// restarts; the store's clocks disagree; checkpoints appear at any time;
// anybody deletes whatever the rules allow as soon as they allow it.
//
// What must hold is listed as [Invariant]. A [Rule] can be taken out, to show
// that it is needed: then the exploration ends with a story of what went wrong.
// Rules that stand in the Protocol itself are taken out around it: the driver
// tells it what it would believe if it did not ask.
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
// a model of what they do, and none of their code: the upload, again and again,
// before the claim; the check against the floor, and the upload anew, whenever a
// commit is built; which object a reader needs. Sweeping, and deleting what no
// longer is live, no broker does yet: they are the rules of the design, followed
// by anybody at any time. A floor is always that of its own slot, the highest
// that leaves writers a key. That no two uploads share a key is taken for granted.
// Which slots and checkpoints there are is decided by the Protocol here too.
//
// # Losses
//
// A store that breaks its promise may lose a slot above all checkpoints, or the
// newest checkpoint with what only it holds ([Config.Losses]). What holds then
// is what [LossIsLoud] and [Contiguity] say. The rest can't hold, and nothing
// can notice:
//
//   - The newest slot is lost, and nobody alive has seen a later one: whoever
//     recovers then writes another commit there. A broker that had applied the
//     lost one halts at its next List, unless another stands in the slot by then:
//     then when it reads the next slot, whose prev does not fit.
//   - The same, and that broker sleeps until its lease has ended: it loads the
//     other history's checkpoint, which says nothing about the slots below it.
//   - A late PUT lands in a lost slot that is known to have a successor: it is
//     read, and may even be acknowledged by its sender, before the successor
//     shows that it does not fit, and halts the broker.
//   - A broker that has applied a lost slot claims the one after it before its
//     next List, and acknowledges. That List halts it, and every recovery halts
//     at the gap.
//   - All checkpoints are lost, and all slots: that is an empty bucket to who
//     has not seen more.
//
// A lost data object stops nobody: reads of its records fail, and the Protocol
// hears nothing of it.
//
// # Queues
//
// [QueueConfig.Explore] and [QueueConfig.Walk] take the log for granted, and look at what
// stands in it: who owns a queue, what is handed out, and whose answer counts. What the log
// lets pass is decided by [state.State] and its Draft, the code that brokers run: every
// commit goes through the bytes of a commit and of a snapshot. What an owner does by what
// it keeps in memory is a model of the broker's desk and of its leases.Table:
//
//   - mayHandOut, rule 1 of docs/rfcs/0002, of how far the desk looks into a partition, and
//     moveWindow of desk.limitItems; lower is what the desk has of the same name;
//   - attempt, rule 2, of the desk's claims; owes is the table's claiming;
//   - park of Broker.park, and commit of desk.mayOwn, which both ask for;
//   - release of desk.releases, after which a desk is closed (leaving);
//   - learn of the desks that close when the log has another owner;
//   - mayExtend of Table.Extend; ack and nack of Queue.answer, and of the look before it.
//
// A broker applies the log up to where it has looked, and acts by that, however old it is:
// so it is paused at any time for any time, an owner that others take for lost hands out
// what it may, and its commits come late. A commit is checked at the end of the log and is
// there at once, since a lost race only means that it is checked again; its sender hears of
// it later, or never ([QueueConfig.Late]). There is no time: leases end whenever they like,
// queues are taken over without a reason, and nobody waits for a backoff. Nothing but
// [LeaseKept] needs leases, so they are left out where they are not looked at
// ([QueueConfig.Leases]). Workers answer whenever they like, late and twice. Through which
// broker is not told apart: all of them ask the log.
//
// A [QueueRule] that stands in the fold is taken out around it, too: the driver commits
// what the fold would take if it did not ask, such as a release in the name of an owner
// that was lost.
//
// Left out: partitions, delays, order by key, and changes of a queue's config.
//
// # Bounds
//
// It is not a proof for other bounds; nor does it look at bytes, or at the fold of
// anything but queues.
// States are told apart by hashes of 128 bits. Left out of a state is what can
// change nothing any more: a data object that nobody can refer to, and that an
// acknowledgement was given, once what was acknowledged is known to be the log
// ([AckDurable] follows from [RecoverOK] then).
package explore
