package commit_test

import "github.com/simple-event-broker/seb/internal/test/kit"

// Short names for the functions of the kit that these tests use.
var (
	appends         = kit.Appends
	counted         = kit.Counted
	immediate       = kit.Immediate
	keys            = kit.Keys
	large           = kit.Large
	mustAppend      = kit.MustAppend
	mustCommitAll   = kit.MustCommitAll
	mustCreateTopic = kit.MustCreateTopic
	mustReset       = kit.MustReset
	newFaulty       = kit.NewFaulty
	open            = kit.Open
	readAll         = kit.ReadAll
	values          = kit.Values
	wantAt          = kit.WantAt
	wantCode        = kit.WantCode
	wantConflict    = kit.WantConflict
	wantError       = kit.WantError
	wantOutcome     = kit.WantOutcome
	wantPart        = kit.WantPart
	wantText        = kit.WantText
	wantValues      = kit.WantValues
	withWorker      = kit.WithWorker
)
