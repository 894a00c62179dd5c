package fault_test

import "github.com/simple-event-broker/seb/internal/test/kit"

// Short names for the functions of the kit that these tests use.
var (
	appendTo        = kit.AppendTo
	appends         = kit.Appends
	body            = kit.Body
	counted         = kit.Counted
	dataIsThere     = kit.DataIsThere
	handed          = kit.Handed
	immediate       = kit.Immediate
	keys            = kit.Keys
	kill            = kit.Kill
	large           = kit.Large
	mustAck         = kit.MustAck
	mustAppend      = kit.MustAppend
	mustCommitAll   = kit.MustCommitAll
	mustCreateTopic = kit.MustCreateTopic
	mustReceive     = kit.MustReceive
	mustReset       = kit.MustReset
	mustSet         = kit.MustSet
	newFaulty       = kit.NewFaulty
	newRand         = kit.NewRand
	numbered        = kit.Numbered
	open            = kit.Open
	openDir         = kit.OpenDir
	openOnly        = kit.OpenOnly
	openQueue       = kit.OpenQueue
	openQueueOn     = kit.OpenQueueOn
	readAll         = kit.ReadAll
	remove          = kit.Remove
	replace         = kit.Replace
	tokens          = kit.Tokens
	values          = kit.Values
	wantAt          = kit.WantAt
	wantAtEnd       = kit.WantAtEnd
	wantCode        = kit.WantCode
	wantError       = kit.WantError
	wantHanded      = kit.WantHanded
	wantLeft        = kit.WantLeft
	wantOutcome     = kit.WantOutcome
	wantPart        = kit.WantPart
	wantText        = kit.WantText
	wantValues      = kit.WantValues
	withWorker      = kit.WithWorker
)

func ptr[T any](v T) *T { return &v }
