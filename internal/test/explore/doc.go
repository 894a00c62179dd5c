// Package explore is a model checker. It runs the [commitlog.Protocol] that brokers run against a model
// of the store, without goroutines, clocks or I/O, and checks that the log loses no commit.
//
// A world is one state of a store and its brokers. A step makes one thing happen in a world. [Explore]
// visits every state that steps can reach within small bounds; it begins with the states that the fewest
// steps reach. [Walk] takes random steps, within larger bounds. Both check each [Invariant] after every
// step. If an invariant does not hold, they return a story, which tells what happened in each step.
//
// In this package, D is how long a checkpoint must have been visible before brokers may delete what the
// checkpoint replaces. The package checks queues, and what brokers hand over to each other, in the same
// way: see Queues and Handing over, below.
//
// These faults can happen:
//
//   - A reply gets lost or comes late.
//   - A PUT, once sent, executes at any later time, any number of times, even after its sender crashed.
//   - A broker stops between two steps for any time, or crashes and restarts.
//   - The store's clocks disagree.
//   - Checkpoints appear at any time, and objects are deleted as soon as the rules allow that.
//
// A test can leave out a [Rule], to show that the rule is needed: then the exploration must find a
// violation. Some rules are inside the Protocol. To leave out such a rule, the model gives the Protocol
// false answers, which make the Protocol act as if it did not have the rule.
//
// The steps of a broker mirror Log.perform in package commitlog, and the loops that call it. There is
// one simplification: a broker applies a commit as soon as it has read the commit, since neither the
// store nor another broker can tell when a broker applies a commit. A crash between the read and the
// application is the same as a lost answer to the read. The model has no local clock, since that clock
// can only shorten a lease. Instead, a broker may at any time renew its lease early, or get an answer that
// its local clock finds too late.
//
// # Data objects
//
// The Protocol knows nothing of data objects, and the model does not run the brokers' code for them. So
// the model repeats what that code does. Before a broker claims a slot, it uploads the payload, with
// retries. Whenever a broker builds a commit, it compares the data object with the data floor, and may
// upload the payload again. A reader needs the data objects to which the state refers.
//
// A data floor is an entry of the log. It names a slot, and promises that no later commit refers
// to a data object whose upload began before that slot was applied. A sweep deletes orphans:
// data objects below the floor to which no commit refers. Brokers do not delete orphans or dead data
// objects yet. The model does, as soon as the rules of the design allow it. In the model, a floor entry
// always names its own slot: a higher floor would also forbid the data objects of uploads that begin
// right after that entry. The model assumes that no two uploads share a key.
//
// # Losses
//
// A store that breaks its promise may lose a slot above all checkpoints, or the
// newest checkpoint with everything that is in no other object ([Config.Losses]).
// Then only [LossIsLoud] and [Contiguity] hold. The other invariants can't hold, since
// the brokers may notice the loss only after some time. Examples:
//
//   - The newest slot is lost, and no running broker has seen a later slot. Then a broker that
//     recovers writes another commit into the lost slot. A broker that had applied the lost
//     commit halts at its next List. But if the slot has the other commit by the time of that List, the
//     broker halts only when it reads the next slot, whose hash of the previous commit does not fit.
//   - The newest slot is lost and gets another commit, while the broker that had
//     applied the lost commit sleeps until its lease has ended. Then this broker loads a
//     checkpoint that covers the other commit. The checkpoint does not tell which commits
//     were in the slots below.
//   - A late PUT lands in a lost slot, although brokers know that the next slot exists.
//     A broker may read the late commit, and the sender of the late commit may even acknowledge it.
//     The broker halts only when it reads the next slot, whose hash of the previous commit does not fit.
//   - A broker has applied a slot that is lost. Before its next List, it wins the next slot, and
//     acknowledges that commit. Then the List halts this broker, and every recovery halts at the
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
// in it: which broker owns a queue, which records are handed out, and which answers of workers are
// accepted. [state.State] and its Draft, the code that brokers run, decide which commits are valid.
// Every commit is encoded and decoded, and so is the snapshot of every state. What an
// owner keeps in memory is a model of the broker's dispatcher and of the dispatcher's leases.Table:
//
//   - mayHandOut models how far the dispatcher reads a partition (rule 1 of docs/rfcs/0002);
//   - moveWindow models how the dispatcher moves the dispatch limit; the field lower has a lower limit
//     that the dispatcher has sent to the log, until the dispatcher learns that the log has this limit;
//   - attempt models the dispatcher's record claims (rule 2); the field owes has the deliveries for which
//     the table has the phase "claiming";
//   - deadLetter models how records become dead letters;
//   - commit models that every commit of an owner is checked against the queue's epoch;
//   - release models that a dispatcher releases its queue, and then ends;
//   - learn models that a dispatcher ends when the log has another owner;
//   - mayExtend models Table.Extend;
//   - ack and nack model answers, and the sync before them.
//
// A broker acts on the state that it knew after its last sync, however old that state is. So the model
// has brokers that pause at any time, former owners that still hand out records, and late commits. A
// commit is checked against the state at the end of the log, and is in the log at once. The model has no
// lost races, since after a lost race a broker only checks its commit again. The sender of a commit may
// learn the outcome later, or never ([QueueConfig.Late]).
//
// The model has no time: leases end at any moment, queues are taken over without a reason, and backoff
// is 0. Only [LeaseKept] needs leases, so tests that do not check it leave [QueueConfig.Leases] off.
// Workers answer at any moment, late and twice. It does not matter through which broker a worker
// answers, since a broker decides by the state at the end of the log.
//
// A test can also leave out a [QueueRule] that the fold enforces. Then the model changes a commit so that
// the fold accepts it: for example, a lost owner's release gets the epoch of the current owner.
//
// The model has only one partition, and no delays, no order by key, and no changes of a queue's config.
//
// # Handing over
//
// [HandoverConfig.Explore] and [HandoverConfig.Walk] check docs/rfcs/0005: brokers hand over bundles of
// requests to a broker that commits for all. [handover.Sender] and [handover.Receiver], the code that
// decides about bundles, run unchanged. The log is a simple model, since the Protocol is explored by itself:
// a slot is won once, and a broker claims only the slot after those that it has applied.
//
//   - A bundle may be sent to any broker at any time. Once sent, it arrives at any later time, any number of
//     times, or never. So the model contains every choice that [handover.Winner] can make, and does not run
//     it. A lost call, offer or answer is the same as a bundle that is not sent.
//   - A PUT, once sent, may succeed at any later time while the slot is free, even after its sender crashed
//     or gave the claim up.
//   - A broker stops between two steps for any time, loads a checkpoint of any later slot, crashes and
//     restarts, or becomes a copy of another broker, with its memory, session and numbers. If the original
//     crashes afterwards, the copy is a machine that was restored from a snapshot.
//   - A broker claims a slot for a request that is in no bundle, and puts the request into a bundle later.
//   - A broker applies commits that it gets from other brokers.
//   - A request may have a condition: that the log has exactly one committed request before it. So a broker
//     may have to refuse the request in one slot, and another broker may commit it in the next slot.
//   - A peer that has another log sends a bundle or a commit.
//
// A claim has no identity: if two brokers claim a slot with the same marks, each takes the commit for its
// own. That only makes more brokers winners. The model has no verdict "again", no merged batches, and no
// limits of the bundles in hand. No broker is copied while it has a request that is in no bundle: each copy
// would commit that request.
//
// # Bounds
//
// An exploration proves nothing for larger bounds. It checks no bytes of records, and of the fold only
// the part for queues. Two worlds count as equal if the 128-bit hashes of their keys are equal.
// A key leaves out what can no longer change anything: data objects to which no commit can refer any
// longer, and acknowledged commits if all invariants are checked ([AckDurable] then follows from
// [RecoverOK]).
package explore
