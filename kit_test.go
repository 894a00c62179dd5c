package seb_test

import "github.com/simple-event-broker/seb/internal/test/kit"

// Short names for what the tests use of the kit.
var (
	appendTo        = kit.AppendTo
	appendValues    = kit.AppendValues
	appends         = kit.Appends
	asCaller        = kit.AsCaller
	batchOf         = kit.BatchOf
	body            = kit.Body
	bySecret        = kit.BySecret
	counted         = kit.Counted
	createKey       = kit.CreateKey
	deliverWith     = kit.DeliverWith
	handed          = kit.Handed
	heap            = kit.Heap
	immediate       = kit.Immediate
	keys            = kit.Keys
	large           = kit.Large
	mustAck         = kit.MustAck
	mustAppend      = kit.MustAppend
	mustCommitAll   = kit.MustCommitAll
	mustCreateTopic = kit.MustCreateTopic
	mustPush        = kit.MustPush
	mustReceive     = kit.MustReceive
	mustReset       = kit.MustReset
	mustSet         = kit.MustSet
	newFaulty       = kit.NewFaulty
	newRand         = kit.NewRand
	numbered        = kit.Numbered
	offBy           = kit.OffBy
	open            = kit.Open
	openDir         = kit.OpenDir
	openOnly        = kit.OpenOnly
	openQueue       = kit.OpenQueue
	openQueueOn     = kit.OpenQueueOn
	pushedQueue     = kit.PushedQueue
	queueOf         = kit.QueueOf
	readAll         = kit.ReadAll
	remove          = kit.Remove
	replace         = kit.Replace
	shifted         = kit.Shifted
	status          = kit.Status
	tokens          = kit.Tokens
	values          = kit.Values
	waiting         = kit.Waiting
	wallOff         = kit.WallOff
	wantAt          = kit.WantAt
	wantCode        = kit.WantCode
	wantDone        = kit.WantDone
	wantError       = kit.WantError
	wantHanded      = kit.WantHanded
	wantLeft        = kit.WantLeft
	wantOutcome     = kit.WantOutcome
	wantPart        = kit.WantPart
	wantText        = kit.WantText
	wantValues      = kit.WantValues
	withWorker      = kit.WithWorker
)
