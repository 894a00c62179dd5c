package consumers_test

import "github.com/simple-event-broker/seb/internal/test/kit"

// Short names for the functions of the kit that these tests use.
var (
	appendTo        = kit.AppendTo
	immediate       = kit.Immediate
	mustAppend      = kit.MustAppend
	mustCreateTopic = kit.MustCreateTopic
	mustReset       = kit.MustReset
	newFaulty       = kit.NewFaulty
	open            = kit.Open
	readAll         = kit.ReadAll
	take            = kit.Take
	timed           = kit.Timed
	wantAt          = kit.WantAt
	wantCode        = kit.WantCode
	wantError       = kit.WantError
)
