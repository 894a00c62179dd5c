package main

import "context"

// caseFunc measures one case. Bad figures are no error: a caseFunc returns an error only if it could not
// measure.
type caseFunc func(ctx context.Context, r *run) error

// growthCase is a named measurement of something that grows.
type growthCase struct {
	name  string
	about string
	run   caseFunc
}

var cases = []growthCase{
	{"topics", "many topics: appends to one of them, memory, restart", topics},
	{"partitions", "one topic with many partitions: appends spread over all, memory, restart", partitions},
	{"consumers", "many consumers of one topic: commits of positions, memory, restart", consumers},
	{"queues", "many queues of one topic: receives from one after the other, memory, restart", queues},
	{"pushes", "many pushed queues with a backlog: appends to another topic, how the queues share", pushes},
	{"commits", "a log of many commits: appends, checkpoints, restart with fewer and fewer checkpoints", commits},
	{"queue-restart", "many queues with a backlog: messages and memory before and after kill -9", queueRestart},
	{"queue-lost", "a small queue whose broker is killed: how long nothing is handed out, and commits", queueLost},
	{"lists", "many topics of many partitions: memory while many callers list them", lists},
	{"dead", "many dead letters in one queue: pages of them", dead},
	{"slow-clients", "clients that send or read slowly: small appends of others", slowClients},
	{"hostile-clients", "clients that take memory or CPU time: appends with another API key, large and small", hostileClients},
	{"long-read", "reads of many small commits from a slow store (needs SEB_TEST_VERSITYGW)", longRead},
	{"several-brokers", "1 to 8 brokers on a slow store: appends, requests to the store, events (needs SEB_TEST_VERSITYGW)", severalBrokers},
	{"lost-brokers", "the broker that commits for all is killed, suspended, stopped, cut off: appends at the others (needs SEB_TEST_VERSITYGW)", lostBrokers},
}
