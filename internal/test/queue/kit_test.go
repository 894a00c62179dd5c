package queue_test

import "github.com/simple-event-broker/seb/internal/test/kit"

// Short names for the functions of the kit that these tests use.
var (
	appendTo        = kit.AppendTo
	batchOf         = kit.BatchOf
	handed          = kit.Handed
	heap            = kit.Heap
	immediate       = kit.Immediate
	keys            = kit.Keys
	kill            = kit.Kill
	large           = kit.Large
	mustAck         = kit.MustAck
	mustAppend      = kit.MustAppend
	mustCreateTopic = kit.MustCreateTopic
	mustReceive     = kit.MustReceive
	mustSet         = kit.MustSet
	newFaulty       = kit.NewFaulty
	offBy           = kit.OffBy
	open            = kit.Open
	openOnly        = kit.OpenOnly
	queueOf         = kit.QueueOf
	shifted         = kit.Shifted
	tokens          = kit.Tokens
	values          = kit.Values
	waiting         = kit.Waiting
	wallOff         = kit.WallOff
	wantCode        = kit.WantCode
	wantHanded      = kit.WantHanded
	wantLeft        = kit.WantLeft
	wantOutcome     = kit.WantOutcome
	wantValues      = kit.WantValues
)
