package state

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/simple-event-broker/seb/internal/format"
)

// indexed is a thing (such as a topic, API key, consumer or queue) with an id and a name. The
// id is never reused. The name is unique among the things of the same kind in the same topic.
type indexed[ID ids] interface {
	ref() (id ID, name scopedName)
}

// ids are the types of ids.
type ids interface{ ~uint64 }

// scopedName is the name of a thing and the id of the thing's topic. Names of topics and API
// keys have the topic 0.
type scopedName struct {
	topic format.TopicID
	name  string
}

// String names the thing for errors.
func (n scopedName) String() string {
	if n.topic == 0 {
		return strconv.Quote(n.name)
	}
	return fmt.Sprintf("%q of topic %d", n.name, n.topic)
}

func idOrder[ID ids, T indexed[ID]](a, b T) int {
	x, _ := a.ref()
	y, _ := b.ref()
	return cmp.Compare(x, y)
}

func nameOrder[ID ids, T indexed[ID]](a, b T) int {
	_, x := a.ref()
	_, y := b.ref()
	return cmp.Or(cmp.Compare(x.topic, y.topic), strings.Compare(x.name, y.name))
}

// index holds all things of one kind: the topics, API keys, consumers or queues of the log.
type index[ID ids, T indexed[ID]] struct {
	kind   string
	limit  int // how many things a log may have; without a limit, a damaged number could make a broker allocate all memory
	next   ID
	byID   map[ID]T
	byName map[scopedName]T
	list   sorted[T]
	order  func(a, b T) int         // the order of list, in which things of one topic are neighbors
	most   struct{ ids, names int } // the largest sizes of the maps: see shrunkMap
}

// indexMemory is the memory in bytes of one thing in the two maps and the list.
const indexMemory = 2*64 + sortedMemory

func newIndex[ID ids, T indexed[ID]](kind string, limit int, order func(a, b T) int) index[ID, T] {
	return index[ID, T]{kind: kind, limit: limit, next: 1, byID: map[ID]T{}, byName: map[scopedName]T{}, order: order}
}

func (x *index[ID, T]) put(t T) {
	id, name := t.ref()
	x.byID[id], x.byName[name] = t, t
	x.list.add(t, x.order)
	x.next = max(x.next, id+1)
}

func (x *index[ID, T]) drop(t T) {
	id, name := t.ref()
	delete(x.byID, id)
	delete(x.byName, name)
	x.list.remove(t, x.order)
	x.byID, x.byName = shrunkMap(x.byID, &x.most.ids), shrunkMap(x.byName, &x.most.names)
}

// after returns the things of t's topic that come after t in the index's order. It returns at
// most the given number of things; the cost depends on this number alone.
func (x *index[ID, T]) after(t T, most int) (list []T) {
	_, at := t.ref()
	for next := range x.list.from(t, x.order) {
		if _, name := next.ref(); name.topic != at.topic || len(list) == most {
			break
		}
		if x.order(next, t) != 0 {
			list = append(list, next)
		}
	}
	return list
}

// oldest returns the things with the smallest ids, sorted by id. It returns at most the given
// number of things.
func (x *index[ID, T]) oldest(most int) []T {
	if most >= len(x.byID) { // smallest would take time in the square of their number
		return slices.SortedFunc(maps.Values(x.byID), idOrder[ID, T])
	}
	return smallest(maps.Values(x.byID), most, idOrder[ID, T])
}

// continues does for things of one kind what [State.Continues] does. It returns an error if the
// next id falls, if a deleted thing comes back, or if the name or topic of a thing changes.
// follows reports whether the other fields of a thing may have changed from their values in was
// to their values in now.
func (x *index[ID, T]) continues(old *index[ID, T], follows func(was, now T) bool) error {
	if x.next < old.next {
		return fmt.Errorf("%w: the next %s id was %d and is now %d", ErrDiscontinued, x.kind, old.next, x.next)
	}
	for id, now := range x.byID {
		if id >= old.next {
			continue
		}
		was, known := old.byID[id]
		if !known || nameOrder[ID](was, now) != 0 || !follows(was, now) {
			return fmt.Errorf("%w: %s %d is not the same as before", ErrDiscontinued, x.kind, id)
		}
	}
	return nil
}

// decode reads the next id, then the things by ascending id. The function one decodes a thing,
// which takes at least size bytes; the function put adds the thing to the state.
func (x *index[ID, T]) decode(r *reader, size int, one func(r *reader) T, put func(t T)) {
	x.next = ID(r.uvarint())
	n := r.count(size)
	if x.next == 0 || n > x.limit {
		r.fail("%s: %d of them, at most %d are allowed; the next id is %d, and must be above 0", x.kind, n, x.limit, x.next)
	}
	var last ID
	for range n {
		t := one(r)
		id, name := t.ref()
		if _, taken := x.byName[name]; r.err == nil && (taken || id <= last || id >= x.next) {
			r.fail("%s %d, %v, is invalid: its name is taken, or its id is not above %d and below %d", x.kind, id, name, last, x.next)
		}
		if r.err != nil {
			return
		}
		last = id
		put(t)
	}
}

// copiesByID returns copies of things, sorted by id.
func copiesByID[ID ids, T any](byID map[ID]*T) []T {
	order := slices.AppendSeq(make([]ID, 0, len(byID)), maps.Keys(byID))
	slices.Sort(order)
	list := make([]T, 0, len(order))
	for _, id := range order {
		list = append(list, *byID[id])
	}
	return list
}

// indexDraft holds the changes that a commit under construction makes to an index. D is the type
// of a thing with these changes.
type indexDraft[ID ids, T indexed[ID], D any] struct {
	base    *index[ID, T]
	next    ID
	count   int
	changed map[ID]*D         // by id; nil = deleted
	created map[scopedName]ID // ids of the things that the commit creates
}

// idOf returns the id of the thing with a name; ok reports whether it exists.
func (x *indexDraft[ID, T, D]) idOf(name scopedName) (id ID, ok bool) {
	id, ok = x.created[name]
	if !ok {
		var t T
		if t, ok = x.base.byName[name]; ok {
			id, _ = t.ref()
		}
	}
	now, changed := x.changed[id]
	return id, ok && (now != nil || !changed)
}

// find returns a thing with the changes of the commit; nil if the thing doesn't exist. If the
// commit has not changed the thing yet, the result is draft(t), where t is the thing in the
// index.
func (x *indexDraft[ID, T, D]) find(id ID, draft func(t T) *D) *D {
	if now, changed := x.changed[id]; changed {
		return now
	}
	if t, ok := x.base.byID[id]; ok {
		return draft(t)
	}
	return nil
}

func (x *indexDraft[ID, T, D]) put(id ID, now *D) {
	if x.changed == nil {
		x.changed = map[ID]*D{}
	}
	x.changed[id] = now
}

// create adds a thing if its id is the next one and the name is free.
func (x *indexDraft[ID, T, D]) create(id ID, name scopedName, now *D) error {
	_, taken := x.idOf(name)
	why := ""
	switch {
	case taken:
		why = "the name is taken"
	case id != x.next:
		why = fmt.Sprintf("the next id is %d", x.next)
	case x.count >= x.base.limit:
		why = fmt.Sprintf("there are %d already, and no more are allowed", x.count)
	}
	if why != "" {
		return fmt.Errorf("%w: %s %d, %v, can't be created: %s", ErrNonsense, x.base.kind, id, name, why)
	}
	x.put(id, now)
	if x.created == nil {
		x.created = map[scopedName]ID{}
	}
	x.created[name] = id
	x.next++
	x.count++
	return nil
}

// drop deletes a thing that exists.
func (x *indexDraft[ID, T, D]) drop(id ID) {
	x.put(id, nil)
	x.count--
}
