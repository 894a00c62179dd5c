package trigger

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/simple-event-broker/seb"
)

const (
	// The runner stores pages while these are at most 1/storeShare of the bytes that it has read, and storeMin bytes at once.
	storeShare = 4
	storeMin   = 256 << 10
	// storeAfter is the log time after which pages that have changed are stored in any case: the records that they rest on may be
	// deleted, and after a restart they would have to be read again.
	storeAfter = 10 * time.Minute
	// trimAfter is how many records of the state that no manifest needs are kept, so that they are rarely deleted.
	trimAfter = 2048
)

// store stores the pages of an evaluator in the topic of the state. Each page is stored by itself, when its turn comes.
type store struct {
	pages  map[int]storedPage // the newest copies, and for pages that have changed since the moment up to which the copy is good
	whole  position           // up to there, all other pages have no entities
	spent  int64              // bytes of pages that were stored
	before seb.Offset         // what the manifest before the newest one needs begins there
	start  seb.Offset         // of the state's topic
	marks  []mark             // where the topics were read at each clock of a page, or at the last one before it
}

// mark says where topics are read on at a moment.
type mark struct {
	clock position
	next  map[seb.TopicID]map[int32]seb.Offset
}

// next returns where a topic is read on after the snapshot was loaded; nil if it was not read before.
func (s *store) next(id seb.TopicID) map[int32]seb.Offset {
	if len(s.marks) == 0 {
		return nil
	}
	return s.marks[0].next[id]
}

// oldest returns the earliest clock of a page, and forgets the marks that no page needs.
func (s *store) oldest() position {
	least := s.whole
	for _, p := range s.pages {
		if p.clock.compare(least) < 0 {
			least = p.clock
		}
	}
	for len(s.marks) > 1 && s.marks[1].clock.compare(least) <= 0 {
		s.marks = s.marks[1:]
	}
	return least
}

// load loads the newest snapshot, and returns the moment from which on records have to be read again.
func (s *store) load(ctx context.Context, r *runner) (position, error) {
	s.pages = map[int]storedPage{}
	b, o := r.b, &r.output
	if o.manifest > 0 {
		records, err := fetchState(ctx, b, o.manifest, 1)
		if err != nil {
			return position{}, err
		}
		m, err := decodeManifest(records[0].Value)
		if err != nil {
			return position{}, err
		}
		s.pages, s.whole = m.pages, m.clock
		maps.Copy(o.fired, m.fired)
		s.marks = []mark{{s.oldest(), m.next}}
		if err := s.loadPages(ctx, r); err != nil {
			return position{}, err
		}
	}
	for next := o.manifest; next < o.end; {
		records, err := fetchState(ctx, b, next, 1000)
		if err != nil {
			return position{}, err
		}
		for i := range records {
			if kindOf(&records[i]) == kindJournal {
				if err := o.replay(&records[i]); err != nil {
					return position{}, err
				}
			}
		}
		next = records[len(records)-1].Offset + 1
	}
	for i := range r.eval.pages {
		r.eval.pages[i].clock = s.whole
		if p, stored := s.pages[i]; stored {
			r.eval.pages[i].clock = p.clock
		}
	}
	return s.oldest(), nil
}

func (s *store) loadPages(ctx context.Context, r *runner) error {
	stored := slices.SortedFunc(maps.Keys(s.pages), func(a, b int) int { return cmp.Compare(s.pages[a].at, s.pages[b].at) })
	var records []seb.Record
	for _, i := range stored {
		p := s.pages[i]
		if p.at < 0 {
			continue
		}
		at := slices.IndexFunc(records, func(rec seb.Record) bool { return rec.Offset == p.at })
		if at < 0 {
			var err error
			if records, err = fetchState(ctx, r.b, p.at, 1000); err != nil {
				return err
			}
			at = 0
		}
		rec := &records[at]
		if rec.Offset != p.at || kindOf(rec) != kindPage {
			return fmt.Errorf("%w: offset %d of topic %s has no page", errState, p.at, stateTopic)
		}
		find := func(name string, number int64) *active { return r.known[firedVersion{name, number}] }
		if err := r.eval.loadPage(rec.Value, p.clock, find); err != nil {
			return err
		}
	}
	return nil
}

func kindOf(r *seb.Record) string {
	for _, h := range r.Headers {
		if h.Name == kindHeader {
			return string(h.Value)
		}
	}
	return ""
}

// fetchState returns at least one record of the state's topic.
func fetchState(ctx context.Context, b *seb.Broker, from seb.Offset, limit int) ([]seb.Record, error) {
	got, err := b.Fetch(ctx, stateTopic, 0, seb.At(from), seb.FetchOptions{Limit: limit, MaxBytes: 4 << 20})
	if err != nil {
		return nil, fmt.Errorf("read the state of triggers: %w", err)
	}
	if len(got.Records) == 0 {
		return nil, fmt.Errorf("%w: topic %s has no record at offset %d", errState, stateTopic, from)
	}
	return got.Records, nil
}

// write stores pages that have changed, those with the oldest copies first, as far as the share of what was read allows.
func (s *store) write(ctx context.Context, r *runner) error {
	may := r.inputs.bytes/storeShare - s.spent
	if old := s.whole.time + storeAfter.Microseconds(); may < cmp.Or(r.o.storeMin, storeMin) && r.eval.passed < old {
		return nil
	}
	_, err := s.storePages(ctx, r, max(may, commitBytes))
	return err
}

// finish stores all pages that have changed.
func (s *store) finish(ctx context.Context, r *runner) error {
	for {
		if more, err := s.storePages(ctx, r, commitBytes); err != nil || !more {
			return err
		}
	}
}

// storePages stores pages of about so many bytes, and a manifest. It returns false if no page has changed.
func (s *store) storePages(ctx context.Context, r *runner, most int64) (bool, error) {
	if err := r.output.settle(); err != nil { // the manifest names offsets, so nothing may come between
		return false, err
	}
	now := r.eval.clock()
	var changed []int
	for i := range r.eval.pages {
		p := &r.eval.pages[i]
		old, has := s.pages[i]
		switch {
		case p.clock.compare(now) > 0: // it was stored behind what was read again so far
		case p.dirty && len(p.runs)+len(p.fired) == 0:
			p.dirty = false
			delete(s.pages, i)
		case p.dirty:
			if changed = append(changed, i); !has {
				s.pages[i] = storedPage{-1, s.whole}
			}
		case has:
			s.pages[i] = storedPage{old.at, now}
		}
	}
	slices.SortStableFunc(changed, func(a, b int) int { return s.pages[a].clock.compare(s.pages[b].clock) })
	var records []seb.Record
	bytes := int64(0)
	for _, i := range changed {
		value := r.eval.storePage(i)
		if limit := r.b.Limits(); len(value)+1024 > limit.RecordBytes || len(value)+1024 > limit.RequestBytes {
			return false, fmt.Errorf("a page of the state of triggers has %d bytes, more than a record can have", len(value))
		}
		records = append(records, seb.Record{Value: value, Headers: []seb.Header{{Name: kindHeader, Value: []byte(kindPage)}}})
		s.pages[i] = storedPage{r.output.end + seb.Offset(len(records)), now} // behind the manifest
		if bytes += int64(len(value)); bytes >= min(most, commitBytes) {
			break
		}
	}
	s.whole = now
	if len(records) == 0 {
		return false, nil
	}
	s.marks = append(s.marks, mark{now, r.inputs.places()})
	s.oldest()
	m := manifest{pages: s.pages, clock: now, fired: r.output.fired, next: s.marks[0].next}
	// The manifest is the first record, since the consumer can be moved up to the end before the commit.
	records = slices.Insert(records, 0, seb.Record{Value: m.encode(), Headers: []seb.Header{{Name: kindHeader, Value: []byte(kindManifest)}}})
	needs := m.needs()
	r.output.manifest = r.output.end
	if err := r.output.commit(ctx, seb.Commit{}, journal{}, records...); err != nil {
		return false, err
	}
	for _, i := range changed[:len(records)-1] {
		r.eval.pages[i].dirty = false
	}
	s.spent += bytes
	return true, s.trim(ctx, r, min(needs, r.output.manifest))
}

// needs returns the first offset that the manifest names.
func (m *manifest) needs() seb.Offset {
	least := seb.Offset(1<<63 - 1)
	for _, p := range m.pages {
		if p.at >= 0 {
			least = min(least, p.at)
		}
	}
	return least
}

// trim deletes what neither the newest manifest nor the one before needs.
func (s *store) trim(ctx context.Context, r *runner, needs seb.Offset) error {
	both := min(needs, s.before)
	s.before = needs
	if both-s.start < cmp.Or(r.o.trimAfter, trimAfter) {
		return nil
	}
	p, err := r.b.DeleteRecords(ctx, stateTopic, 0, both)
	if err != nil {
		return fmt.Errorf("delete old state of triggers: %w", err)
	}
	s.start = p.Start
	return nil
}

// replay takes an entry of the journal.
func (o *output) replay(rec *seb.Record) error {
	j, err := decodeJournal(rec.Value)
	if err != nil {
		return err
	}
	for _, f := range j.Fired {
		o.fired[firedVersion{f.Trigger, f.Version}] = f.Last
	}
	return nil
}
