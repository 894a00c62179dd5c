package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	dto "github.com/prometheus/client_model/go"
)

// topConsumer is a row of the consumers.
type topConsumer struct {
	Topic  string `json:"topic"`
	Name   string `json:"name"`
	Lag    int64  `json:"lag"`
	Missed int64  `json:"missed"`
}

// topQueue is a row of the queues.
type topQueue struct {
	Topic   string   `json:"topic"`
	Name    string   `json:"name"`
	Left    int64    `json:"left"` // neither done nor dead letters
	Delayed int64    `json:"delayed"`
	Dead    int64    `json:"dead"`
	Oldest  *float64 `json:"oldest_age_seconds"` // of the records that are left; nil if none are left
	Push    *string  `json:"push"`               // on, failing or stopped; nil if the queue has no push URL
}

// named is a topic, and the name of a consumer or queue of the topic.
type named struct{ topic, name string }

func (n named) compare(o named) int {
	return cmp.Or(strings.Compare(n.topic, o.topic), strings.Compare(n.name, o.name))
}

// of returns the values of a gauge for each consumer or queue. label is "consumer" or "queue".
func (l *snapshot) of(name, label string) map[named]float64 {
	values := map[named]float64{}
	for _, m := range l.metrics[name].GetMetric() {
		values[namesOf(m, label)] = m.GetGauge().GetValue() + m.GetUntyped().GetValue()
	}
	return values
}

func namesOf(m *dto.Metric, label string) named {
	return named{labelOf(m, "topic"), labelOf(m, label)}
}

// consumersOf returns a row for each consumer, those that are furthest behind first.
func consumersOf(now *snapshot) []topConsumer {
	missed, rows := now.of("seb_consumer_missed_records", "consumer"), []topConsumer{}
	for n, lag := range now.of("seb_consumer_lag_records", "consumer") {
		rows = append(rows, topConsumer{n.topic, n.name, int64(lag), int64(missed[n])})
	}
	slices.SortFunc(rows, func(a, b topConsumer) int {
		return cmp.Or(cmp.Compare(b.Lag, a.Lag), named{a.Topic, a.Name}.compare(named{b.Topic, b.Name}))
	})
	return rows
}

// queuesOf returns a row for each queue, those with the most records first.
func queuesOf(now *snapshot) []topQueue {
	delayed, dead := now.of("seb_queue_delayed_records", "queue"), now.of("seb_queue_dead_records", "queue")
	stopped, failing := now.of("seb_queue_push_stopped", "queue"), now.of("seb_push_failing_since_timestamp_seconds", "queue")
	oldest, rows := now.of("seb_queue_oldest_timestamp_seconds", "queue"), []topQueue{}
	for n, left := range now.of("seb_queue_left_records", "queue") {
		row := topQueue{Topic: n.topic, Name: n.name, Left: int64(left), Delayed: int64(delayed[n]), Dead: int64(dead[n])}
		if at, ok := oldest[n]; ok {
			row.Oldest = new(max(0, float64(now.at.UnixMilli())/1e3-at))
		}
		if is, pushed := stopped[n]; pushed {
			_, fails := failing[n]
			row.Push = new(pushState(is > 0, fails))
		}
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b topQueue) int {
		return cmp.Or(cmp.Compare(b.Left, a.Left), named{a.Topic, a.Name}.compare(named{b.Topic, b.Name}))
	})
	return rows
}

// pushState returns the state of a push in a word. Only the queue's owner knows that a push fails.
func pushState(stopped, failing bool) string {
	switch {
	case stopped:
		return "stopped"
	case failing:
		return "failing"
	}
	return "on"
}

// workTables returns the tables of consumers and queues, without empty ones.
func (v *topView) workTables() (tables [][]string) {
	if len(v.Consumers) > 0 {
		tables = append(tables, tableOf(func(p *printer) {
			p.printf("CONSUMER\tTOPIC\tLAG\tMISSED\n")
			for _, c := range v.Consumers {
				p.printf("%s\t%s\t%d\t%d\n", c.Name, c.Topic, c.Lag, c.Missed)
			}
		}))
	}
	if len(v.Queues) > 0 {
		tables = append(tables, tableOf(func(p *printer) {
			p.printf("QUEUE\tTOPIC\tLEFT\tDELAYED\tDEAD\tOLDEST\tPUSH\n")
			for _, q := range v.Queues {
				oldest := "-"
				if q.Oldest != nil {
					oldest = time.Duration(*q.Oldest * float64(time.Second)).Truncate(100 * time.Millisecond).String()
				}
				push := "-"
				if q.Push != nil {
					push = *q.Push
				}
				p.printf("%s\t%s\t%d\t%d\t%d\t%s\t%s\n", q.Name, q.Topic, q.Left, q.Delayed, q.Dead, oldest, push)
			}
		}))
	}
	return tables
}

// tableOf returns the lines of a table.
func tableOf(rows func(*printer)) []string {
	var s strings.Builder
	t := tabwriter.NewWriter(&s, 0, 0, 2, ' ', 0)
	rows(&printer{w: t})
	_ = t.Flush() // can't fail: the table is written into memory
	return strings.Split(strings.TrimSuffix(s.String(), "\n"), "\n")
}

// fit shortens tables so that they take at most room lines together with the empty lines between them. It shares
// the room evenly, and leaves out a table, except for the first, if there is no room for its heading and a row.
func fit(tables [][]string, room int) (fitting [][]string) {
	room -= len(tables) - 1
	sizes := make([]int, len(tables))
	for given := true; given && room > 0; {
		given = false
		for i := range tables {
			if room > 0 && sizes[i] < len(tables[i]) {
				sizes[i]++
				room--
				given = true
			}
		}
	}
	for i, table := range tables {
		if sizes[i] < len(table) {
			if i > 0 && sizes[i] < 2 {
				continue
			}
			shown := max(1, sizes[i]-1) // at least the heading; one row is for "and N more"
			table = append(table[:shown:shown], fmt.Sprintf("and %d more rows", len(table)-shown))
		}
		fitting = append(fitting, table)
	}
	return fitting
}
