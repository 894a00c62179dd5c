package driplang

import (
	"strings"
	"testing"
	"time"
)

// holds evaluates a condition for an event with a large record.
func holds(t *testing.T, condition string) (bool, error) {
	t.Helper()
	c, err := CompileCondition(condition)
	if err != nil {
		t.Fatalf("%s: %v", condition, err)
	}
	list := make([]any, 1000)
	for i := range list {
		list[i] = int64(i)
	}
	return c.Holds(&Event{
		LogTime: t0, Headers: map[string]string{"h": "1"},
		Data: map[string]any{"b": "b", "a": "a", "c": "c", "long": strings.Repeat("x", 1<<20), "list": list, "lists": []any{list}},
	}, nil)
}

// TestConditionIsRefused has conditions whose check or evaluation could take forever or need any amount of memory, or depends on
// the machine.
func TestConditionIsRefused(t *testing.T) {
	for _, c := range [][2]string{
		{"[1]" + strings.Repeat(".map(x, {x: x})", 40) + " == []", "more than 3 macros"},
		{"[1]" + strings.Repeat(".map(x, [x, x])", 40) + ".exists(x, x == x)", "more than 3 macros"},
		{"[[1]]" + strings.Repeat(".map(x, x + x)", 40) + ".exists(x, x == x)", "more than 3 macros"},
		{"[[1]].map(x, [" + strings.Repeat("x, ", 40) + "x]).map(y, [" + strings.Repeat("y, ", 40) + "y]) == []", "too often"},
		{"key.matches('(a?){1000}b')", "at most 200"},
		{"key.matches(data.pattern)", "the pattern of matches() has to be a string in the condition"},
		{"matches(key, data.pattern)", "the pattern of matches() has to be a string in the condition"},
		{"log_time.getHours('Local') > 8", "the time zone"},
		{"log_time.getHours(data.zone) > 8", "the time zone"},
	} {
		if _, err := CompileCondition(c[0]); err == nil || !strings.Contains(err.Error(), c[1]) {
			t.Errorf("%.60s: %v, want %q", c[0], err, c[1])
		}
	}
}

func TestConditionIsTooExpensive(t *testing.T) {
	for _, text := range []string{
		"[data.long].map(s, s + s).map(s, s + s).exists(s, s == s)",
		"data.list.all(i, data.long + data.long != '')",
		"data.list.all(i, data.lists == data.lists)",
		"data.list.all(i, data.list.all(j, size(data.long) > 0))",
		"data.list.all(i, 7 in data.list)",
		"data.list.all(i, int(data.long) == 7)", // an error, with the string in it
	} {
		start := time.Now()
		if _, err := holds(t, text); err == nil || !strings.Contains(err.Error(), "cost limit exceeded") {
			t.Errorf("%s: %v", text, err)
		}
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("%s took %v", text, took)
		}
	}
}

func TestConditionHolds(t *testing.T) {
	for _, text := range []string{
		"data.list.filter(i, i > 990).map(i, i * 2).exists(i, i == 1998)",
		"'b' in data && has(data.a) && !has(data.x) && data.lists == data.lists",
		"headers.all(h, headers[h] == '1')",
		"log_time.getHours() == 0 && log_time.getHours('+01:00') == 1",
		"key.matches('^$')",
		// Maps are in the order of their keys, whatever the order in memory.
		"data.map(k, k) == ['a', 'b', 'c', 'list', 'lists', 'long']",
		"{'b': 1, 'a': 2, 'c': 3}.map(k, k) == ['a', 'b', 'c']",
		"[{'b': 1, 2: 2, 'a': 3, true: 4, 1: 5}].all(m, m.map(k, k) == [true, 1, 2, 'a', 'b'])",
	} {
		for range 10 {
			if is, err := holds(t, text); err != nil || !is {
				t.Fatalf("%s: %t, %v", text, is, err)
			}
		}
	}
}
