package restore

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
)

const (
	// A hold lasts for holdLasts, and is renewed after each third of that. It is short, since nobody ends that of a process that was killed.
	holdLasts = 30 * time.Minute
	// endTimeout bounds how long the end of a hold takes: without it, the hold ends by itself.
	endTimeout = 20 * time.Second
)

// Hold tells the brokers of the source, in its log, to delete nothing that the copy needs, until end is called or ctx ends. It writes to
// the source as a broker does that only commits. Errors of later renewals go to log; the hold then lasts for half an hour. The hold ends
// by itself if the process is killed. Below [format.LevelSegments], where nothing is deleted, and for a log that
// is damaged, so that its brokers have stopped, Hold does nothing.
func (p *Plan) Hold(ctx context.Context, from objstore.Store, log io.Writer) (end func(), err error) {
	if p.level < format.LevelSegments {
		return func() {}, nil
	}
	o := engine.ToolOptions(log)
	o.NoMaintenance, o.StateMemory = true, 1<<50 // it must not refuse a hold since the state is large
	if p.opts.Boot != nil {
		o.Boot, o.BootID = p.opts.Boot, format.BootID{}
	}
	e := engine.New(from, o)
	if err := e.Open(ctx); err != nil {
		return nil, err
	}
	var b [8]byte
	rand.Read(b[:])
	id := binary.LittleEndian.Uint64(b[:])
	if err := e.Hold(ctx, id, p.Slot, holdLasts); err != nil {
		e.End()
		return nil, errors.Join(err, e.Shutdown(nil))
	}
	renewing, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(holdLasts / 3)
		defer tick.Stop()
		for {
			select {
			case <-renewing.Done():
				return
			case <-tick.C:
				if err := e.Hold(renewing, id, p.Slot, holdLasts); err != nil && renewing.Err() == nil {
					_, _ = fmt.Fprintf(log, "could not tell the brokers of the log to delete nothing that is still to be copied; trying again in %v: %v\n", holdLasts/3, err)
				}
			}
		}
	}()
	return func() {
		stop()
		<-ended
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		if err := e.Hold(ctx, id, p.Slot, 0); err != nil {
			_, _ = fmt.Fprintf(log, "could not tell the brokers of the log that the copy is made, so they delete nothing for up to %v: %v\n", holdLasts, err)
		}
		stopEnd := context.AfterFunc(ctx, e.End)
		defer stopEnd()
		_ = e.Shutdown(nil) // it has nothing left to write
	}, nil
}
