package engine

import (
	"log/slog"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
)

// recoveryReport is the time between two progress reports.
const recoveryReport = 5 * time.Second

// recovery logs the progress of a start. A start takes long if the log has no recent checkpoint, and
// without these reports the operator would see nothing meanwhile.
type recovery struct {
	logger *slog.Logger
	told   time.Time  // when the last report was logged
	from   format.Seq // the slot at the last report
}

func newRecovery(logger *slog.Logger) recovery { return recovery{logger: logger, told: time.Now()} }

// loaded notes that the checkpoint of slot s was loaded. The replay begins after that slot.
func (r *recovery) loaded(s format.Seq) { r.from = s }

// applied notes that slot s was replayed.
func (r *recovery) applied(s format.Seq) {
	passed := time.Since(r.told)
	if passed < recoveryReport {
		return
	}
	r.logger.Info("recovering: replaying commits", "slot", uint64(s),
		"commits_per_second", int64(float64(s-r.from)/passed.Seconds()))
	r.told, r.from = time.Now(), s
}
