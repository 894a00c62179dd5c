package access_test

import "github.com/simple-event-broker/seb/internal/test/kit"

// Short names for the functions of the kit that these tests use.
var (
	asCaller        = kit.AsCaller
	bySecret        = kit.BySecret
	createKey       = kit.CreateKey
	deliverWith     = kit.DeliverWith
	immediate       = kit.Immediate
	mustAppend      = kit.MustAppend
	mustCreateTopic = kit.MustCreateTopic
	mustPush        = kit.MustPush
	mustReceive     = kit.MustReceive
	mustSet         = kit.MustSet
	newFaulty       = kit.NewFaulty
	offBy           = kit.OffBy
	open            = kit.Open
	shifted         = kit.Shifted
	tokens          = kit.Tokens
	values          = kit.Values
	wallOff         = kit.WallOff
	wantCode        = kit.WantCode
	wantOutcome     = kit.WantOutcome
	wantValues      = kit.WantValues
)
