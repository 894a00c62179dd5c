package push_test

import "github.com/simple-event-broker/seb/internal/test/kit"

// Short names for the functions of the kit that these tests use.
var (
	appendValues    = kit.AppendValues
	arrivalMax      = kit.ArrivalMax
	deliverWith     = kit.DeliverWith
	eventually      = kit.Eventually
	immediate       = kit.Immediate
	mustAck         = kit.MustAck
	mustCreateTopic = kit.MustCreateTopic
	mustPush        = kit.MustPush
	mustReceive     = kit.MustReceive
	mustSet         = kit.MustSet
	open            = kit.Open
	openOnly        = kit.OpenOnly
	pushedQueue     = kit.PushedQueue
	queueOf         = kit.QueueOf
	status          = kit.Status
	wantCode        = kit.WantCode
	wantDone        = kit.WantDone
)

func ptr[T any](v T) *T { return &v }
