package idempotency_test

import "github.com/simple-event-broker/seb/internal/test/kit"

// Short names for the functions of the kit that these tests use.
var (
	dataIsThere     = kit.DataIsThere
	immediate       = kit.Immediate
	kill            = kit.Kill
	large           = kit.Large
	mustAppend      = kit.MustAppend
	mustCreateTopic = kit.MustCreateTopic
	newFaulty       = kit.NewFaulty
	offBy           = kit.OffBy
	open            = kit.Open
	openOnly        = kit.OpenOnly
	readAll         = kit.ReadAll
	shifted         = kit.Shifted
	values          = kit.Values
	wallOff         = kit.WallOff
	wantCode        = kit.WantCode
	wantOutcome     = kit.WantOutcome
	wantValues      = kit.WantValues
)
