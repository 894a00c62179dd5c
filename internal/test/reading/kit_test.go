package reading_test

import "github.com/simple-event-broker/seb/internal/test/kit"

// Short names for what the tests use of the kit.
var (
	appendTo        = kit.AppendTo
	immediate       = kit.Immediate
	mustAppend      = kit.MustAppend
	mustCreateTopic = kit.MustCreateTopic
	newFaulty       = kit.NewFaulty
	open            = kit.Open
	openOnly        = kit.OpenOnly
	take            = kit.Take
	timed           = kit.Timed
	wantCode        = kit.WantCode
)
