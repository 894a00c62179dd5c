package dripmodel

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/simple-event-broker/seb/driplang"
)

// RandomExpr returns a random expression that is not refused, at least not under once. Its events are A to D and [driplang.Any],
// its windows have 1 to 30 s, and its conditions compare the number n in the data of an event with that of an earlier one, as
// in "data.n == x.data.n": see [ByNumber].
func RandomExpr(r *rand.Rand) *driplang.Expr {
	for {
		g := generator{Rand: r}
		text, _ := g.then(2, nil)
		if e, err := driplang.Parse(text); err == nil && !Refused(e, true) {
			return e
		}
	}
}

// RandomHistory returns n events with the names A to D. Many have the same time as another event, or as a deadline of a window.
func RandomHistory(r *rand.Rand, n int) []driplang.Event {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var history []driplang.Event
	for range n {
		at = at.Add(time.Duration(pick(r, 0, 0, 0, 1, 1, 2, 3, 5, 10, 30)) * time.Second)
		history = append(history, driplang.Event{Name: pick(r, "A", "B", "C", "D"), LogTime: at, Data: map[string]any{"n": r.Int64N(2)}})
	}
	return history
}

// ByNumber returns a Match for the expressions and histories of this package: it compares names, and decides conditions.
func ByNumber(history []driplang.Event) Match {
	byName := ByName(history)
	number := func(event int) any { return history[event].Data.(map[string]any)["n"] }
	return func(leaf *driplang.Expr, event int, captured map[string]int) bool {
		if leaf.Where == "" {
			return byName(leaf, event, captured)
		}
		alias := strings.TrimSuffix(strings.TrimPrefix(leaf.Where, "data.n == "), ".data.n")
		of, ok := captured[alias]
		return ok && byName(leaf, event, captured) && number(event) == number(of)
	}
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// generator writes random expressions. Each of its functions gets the aliases that can be used, and returns a text that can be an
// operand of anything, with the aliases of the events that have surely happened once the text is true.
type generator struct {
	*rand.Rand
	aliases int // how many there are
}

func (g *generator) one(of int) bool { return g.IntN(of) == 0 }

func (g *generator) then(depth int, usable []string) (string, []string) {
	var texts, sure []string
	for range pick(g.Rand, 1, 2, 2, 2, 2, 3) {
		var text string
		var happened []string
		if len(texts) == 0 && g.one(4) { // a first part that is more than events with OR between them
			text = g.window("("+g.event(usable)+pick(g.Rand, " AND ", " AND NOT ", " OR 2 TIMES ")+g.event(usable)+")", 2)
		} else {
			text, happened = g.operand(depth, slices.Concat(usable, sure))
		}
		texts, sure = append(texts, text), slices.Concat(sure, happened)
	}
	return g.window("("+strings.Join(texts, " THEN ")+")", 6), sure
}

func (g *generator) operand(depth int, usable []string) (string, []string) {
	kind := g.IntN(12)
	if depth == 0 {
		kind = g.IntN(7)
	}
	switch kind {
	case 3:
		return g.window("("+g.times()+"("+g.event(usable)+" OR "+g.event(usable)+"))", 3), nil
	case 4, 5, 6:
		not := "(NOT " + g.times() + g.event(usable) + ")"
		if !g.one(3) {
			return g.window(not, 1), nil
		}
		return not, nil
	case 7, 8:
		a, sureA := g.operand(depth-1, usable)
		b, sureB := g.operand(depth-1, usable)
		return g.window("("+a+" AND "+b+")", 3), slices.Concat(sureA, sureB)
	case 9:
		a, _ := g.operand(depth-1, usable)
		b, _ := g.operand(depth-1, usable)
		return g.window("("+a+" OR "+b+")", 3), nil
	case 10, 11:
		if g.one(3) {
			text, _ := g.then(depth-1, usable)
			return g.window("(NOT "+text+")", 2), nil
		}
		return g.then(depth-1, usable)
	}
	text := g.times() + g.event(nil)
	var sure []string
	if g.aliases < driplang.MaxAliases && g.one(3) {
		g.aliases++
		alias := fmt.Sprintf("x%d", g.aliases)
		text, sure = text+" AS "+alias, []string{alias}
	}
	return g.window("("+text+g.condition(usable)+")", 4), sure
}

func (g *generator) times() string { return pick(g.Rand, "", "", "", "", "2 TIMES ", "3 TIMES ") }

func (g *generator) event(usable []string) string {
	return pick(g.Rand, "A", "A", "A", "B", "B", "B", "C", "C", "D", driplang.Any) + g.condition(usable)
}

func (g *generator) condition(usable []string) string {
	if len(usable) == 0 || !g.one(3) {
		return ""
	}
	return " [data.n == " + pick(g.Rand, usable...) + ".data.n]"
}

// window puts a window around one text of n.
func (g *generator) window(text string, n int) string {
	if !g.one(n) {
		return text
	}
	return fmt.Sprintf("(%s WITHIN %ds)", text, pick(g.Rand, 1, 2, 3, 5, 5, 10, 10, 30, 1+g.IntN(30)))
}
