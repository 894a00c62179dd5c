package reading_test

import "github.com/simple-event-broker/seb/internal/test/kit"

// Short names for the functions of the kit that these tests use.
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
