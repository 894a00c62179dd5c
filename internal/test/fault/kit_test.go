package fault_test

import "github.com/simple-event-broker/seb/internal/test/kit"

// Short names for what the tests use of the kit.
var (
	immediate       = kit.Immediate
	keys            = kit.Keys
	large           = kit.Large
	mustAppend      = kit.MustAppend
	mustCreateTopic = kit.MustCreateTopic
	mustReceive     = kit.MustReceive
	mustSet         = kit.MustSet
	newFaulty       = kit.NewFaulty
	newRand         = kit.NewRand
	numbered        = kit.Numbered
	open            = kit.Open
	openDir         = kit.OpenDir
	openOnly        = kit.OpenOnly
	readAll         = kit.ReadAll
	tokens          = kit.Tokens
	values          = kit.Values
	wantCode        = kit.WantCode
	wantError       = kit.WantError
	wantOutcome     = kit.WantOutcome
	wantText        = kit.WantText
	wantValues      = kit.WantValues
)

func ptr[T any](v T) *T { return &v }
