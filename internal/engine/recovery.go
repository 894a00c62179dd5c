package engine

import (
	"log/slog"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
)

// recoveryReport is how often a start that replays many commits tells how far it is.
const recoveryReport = 5 * time.Second

// recovery tells the operator how far a start is: a log without a recent
// checkpoint takes long to replay, and nothing else would be heard meanwhile.
type recovery struct {
	logger *slog.Logger
	told   time.Time
	from   format.Seq // of the last report
}

func newRecovery(logger *slog.Logger) recovery { return recovery{logger: logger, told: time.Now()} }

// loaded takes note of a checkpoint, from which the replay goes on.
func (r *recovery) loaded(s format.Seq) { r.from = s }

// applied takes note that slot s was replayed.
func (r *recovery) applied(s format.Seq) {
	passed := time.Since(r.told)
	if passed < recoveryReport {
		return
	}
	r.logger.Info("recovering: replaying commits", "slot", uint64(s),
		"commits_per_second", int64(float64(s-r.from)/passed.Seconds()))
	r.told, r.from = time.Now(), s
}
