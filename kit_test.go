package seb_test

import "github.com/simple-event-broker/seb/internal/test/kit"

// Short names for functions of the test kit.
var (
	appendTo        = kit.AppendTo
	appendValues    = kit.AppendValues
	appends         = kit.Appends
	asCaller        = kit.AsCaller
	batchOf         = kit.BatchOf
	bySecret        = kit.BySecret
	createKey       = kit.CreateKey
	deliverWith     = kit.DeliverWith
	handed          = kit.Handed
	heap            = kit.Heap
	immediate       = kit.Immediate
	keys            = kit.Keys
	kill            = kit.Kill
	mustAck         = kit.MustAck
	mustAppend      = kit.MustAppend
	mustCreateTopic = kit.MustCreateTopic
	mustPush        = kit.MustPush
	mustReceive     = kit.MustReceive
	mustReset       = kit.MustReset
	mustSet         = kit.MustSet
	newFaulty       = kit.NewFaulty
	open            = kit.Open
	openOnly        = kit.OpenOnly
	openQueue       = kit.OpenQueue
	openQueueOn     = kit.OpenQueueOn
	pushedQueue     = kit.PushedQueue
	readAll         = kit.ReadAll
	status          = kit.Status
	tokens          = kit.Tokens
	values          = kit.Values
	waiting         = kit.Waiting
	wantAtEnd       = kit.WantAtEnd
	wantCode        = kit.WantCode
	wantDone        = kit.WantDone
	wantError       = kit.WantError
	wantHanded      = kit.WantHanded
	wantLeft        = kit.WantLeft
	wantOutcome     = kit.WantOutcome
	wantValues      = kit.WantValues
)

func ptr[T any](v T) *T { return &v }
