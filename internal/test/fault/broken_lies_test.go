package fault_test

import (
	"testing"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// on returns a lie about requests of one verb and prefix.
func on(verb objstore.Verb, prefix string, fault func(r *brokenRun) storetest.Fault) func(*brokenRun, *witnessed) {
	return func(r *brokenRun, w *witnessed) { w.faulty.On(verb, prefix, fault(r)) }
}

func fixed(fault storetest.Fault) func(*brokenRun) storetest.Fault {
	return func(*brokenRun) storetest.Fault { return fault }
}

const (
	vCreate = objstore.VerbCreate
	vGet    = objstore.VerbGet
	vList   = objstore.VerbList
	vDelete = objstore.VerbDelete
	pLog    = format.LogPrefix
)

// sometimes returns a lie about one of every oneOf requests, on average.
func sometimes(oneOf float64, lie func(*brokenRun) storetest.Fault) func(*brokenRun) storetest.Fault {
	return func(r *brokenRun) storetest.Fault { return storetest.Sometimes(r.rng, 1/oneOf, lie(r)) }
}

func overwrite(r *brokenRun) storetest.Fault       { return storetest.Overwrite(r.bucket) }
func overwriteUnsaid(r *brokenRun) storetest.Fault { return storetest.OverwriteUnsaid(r.bucket) }
func overwriteRacing(r *brokenRun) storetest.Fault {
	return storetest.OverwriteRacing(r.bucket, time.Second)
}
func allWin(r *brokenRun) storetest.Fault     { return storetest.AllWin(r.bucket) }
func interleave(r *brokenRun) storetest.Fault { return storetest.Interleave(r.rng, r.bucket) }

func torn(d time.Duration, zeros bool) func(*brokenRun) storetest.Fault {
	return func(r *brokenRun) storetest.Fault { return storetest.Torn(r.rng, r.bucket, d, zeros) }
}

func leavePart(zeros bool) func(*brokenRun) storetest.Fault {
	return func(r *brokenRun) storetest.Fault { return storetest.LeavePart(r.rng, r.bucket, zeros) }
}

func lagList(d time.Duration) func(*brokenRun) storetest.Fault {
	return func(r *brokenRun) storetest.Fault { return storetest.LagList(r.bucket, d) }
}

func lagGet(d time.Duration) func(*brokenRun) storetest.Fault {
	return func(r *brokenRun) storetest.Fault { return storetest.LagGet(r.bucket, d) }
}

func storeLies() []lie {
	return []lie{
		{name: "nothing", harmless: true},

		{name: "conditions ignored", forks: true, tell: on(vCreate, "", overwrite)},
		{name: "conditions of log ignored", forks: true, tell: on(vCreate, pLog, overwrite)},
		{name: "conditions ignored sometimes", forks: true, seldom: true, tell: on(vCreate, pLog, sometimes(4, overwrite))},
		{name: "overwritten though it says exists", forks: true, tell: on(vCreate, pLog, overwriteUnsaid)},
		{name: "conditions ignored in a race", forks: true, seldom: true, tell: on(vCreate, pLog, overwriteRacing)},
		{name: "all win", forks: true, tell: on(vCreate, pLog, allWin)},
		{name: "all win, everywhere", forks: true, tell: on(vCreate, "", allWin)},
		{name: "bytes interleaved", forks: true, tell: on(vCreate, pLog, interleave)},

		{name: "torn for 100ms", noCrash: true, harmless: true, tell: on(vCreate, "", torn(100*time.Millisecond, false))},
		{name: "zeros for 100ms", noCrash: true, harmless: true, tell: on(vCreate, "", torn(100*time.Millisecond, true))},
		{name: "torn for 5s", seldom: true, tell: on(vCreate, "", torn(5*time.Second, false))},
		{name: "zeros for 5s", seldom: true, tell: on(vCreate, "", torn(5*time.Second, true))},
		{name: "torn for ever", stale: true, tell: on(vCreate, "", torn(time.Hour, false))},
		{name: "parts left in log", stale: true, tell: on(vCreate, pLog, sometimes(4, leavePart(false)))},
		{name: "zeros left in log", stale: true, tell: on(vCreate, pLog, sometimes(4, leavePart(true)))},
		{name: "parts left in data", stale: true, harmless: true, tell: on(vCreate, format.DataPrefix, sometimes(2, leavePart(false)))},
		{name: "parts left in checkpoint", stale: true, tell: on(vCreate, format.CheckpointPrefix, leavePart(false))},
		{name: "zeros left in checkpoint", stale: true, tell: on(vCreate, format.CheckpointPrefix, leavePart(true))},

		{name: "deletes nothing", harmless: true, tell: on(vDelete, "", fixed(storetest.KeepDeleted))},
		{name: "deleted comes back", harmless: true, tell: on(vDelete, "", func(r *brokenRun) storetest.Fault {
			return storetest.DeleteForAWhile(r.bucket, time.Minute)
		})},
		{name: "deletes a slot instead", forks: true, stale: true, seldom: true, tell: on(vDelete, "", func(r *brokenRun) storetest.Fault {
			return storetest.DeleteAnother(r.rng, r.bucket, pLog)
		})},
		{name: "deletes a checkpoint instead", harmless: true, tell: on(vDelete, "", func(r *brokenRun) storetest.Fault {
			return storetest.DeleteAnother(r.rng, r.bucket, format.CheckpointPrefix)
		})},

		{name: "lists lag 10s", seldom: true, tell: on(vList, "", lagList(10*time.Second))},
		{name: "lists lag 1h", seldom: true, tell: on(vList, "", lagList(time.Hour))},
		{name: "lists in no order", stale: true, seldom: true, tell: on(vList, "", func(r *brokenRun) storetest.Fault { return storetest.ShuffleList(r.rng) })},
		{name: "lists leave out", seldom: true, tell: on(vList, "", sometimes(2, func(r *brokenRun) storetest.Fault { return storetest.SkipInList(r.rng, 1) }))},
		{name: "lists leave the first out", seldom: true, tell: on(vList, "", fixed(storetest.SkipFirstInList()))},
		{name: "lists repeat", stale: true, seldom: true, tell: on(vList, "", func(r *brokenRun) storetest.Fault { return storetest.RepeatInList(r.rng) })},
		{name: "lists end early", harmless: true, tell: on(vList, "", fixed(storetest.EndListEarly(1)))},
		{name: "lists are empty", seldom: true, tell: on(vList, "", fixed(storetest.EndListEarly(0)))},
		{name: "lists never end", stale: true, seldom: true, tell: on(vList, "", fixed(storetest.EndlessList))},

		{name: "gets lag 100ms", stale: true, seldom: true, tell: on(vGet, "", lagGet(100*time.Millisecond))},
		{name: "gets lag 10s", stale: true, seldom: true, tell: on(vGet, "", lagGet(10*time.Second))},
		{name: "gets lag 1h", stale: true, seldom: true, tell: on(vGet, "", lagGet(time.Hour))},
		{name: "gets lag sometimes", stale: true, seldom: true, tell: on(vGet, "", sometimes(3, lagGet(10*time.Second)))},

		{name: "clock an hour and a half back", seldom: true, tell: on("", "", shift(-90*time.Minute))},
		{name: "clock half an hour back", harmless: true, tell: on("", "", shift(-30*time.Minute))},
		{name: "clock days ahead", harmless: true, tell: on("", "", shift(10*24*time.Hour))},
		{name: "clock days ahead sometimes", tell: on("", "", sometimes(10, shift(10*24*time.Hour)))},
		{name: "clock wanders within the margin", harmless: true, tell: on("", "", func(r *brokenRun) storetest.Fault {
			return storetest.ShiftTime(func() time.Duration { return time.Duration(time.Now().UnixNano()%int64(time.Hour)) - 30*time.Minute })
		})},
		{name: "no dates", tell: on("", "", fixed(storetest.NoTime))},
	}
}

func shift(d time.Duration) func(*brokenRun) storetest.Fault {
	return fixed(storetest.ShiftTime(func() time.Duration { return d }))
}

// A store lies to brokers that run. No client is served a shorter or another log than the same broker
// has shown before, and the lie is noticed.
func TestLyingStoreIsNoticed(t *testing.T) {
	for _, l := range storeLies() {
		t.Run(l.name, func(t *testing.T) { tellLie(t, l, 6) })
	}
}
