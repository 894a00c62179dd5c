package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/simple-event-broker/seb"
)

// topView is what top shows: rates between two snapshots, and values of the second snapshot.
type topView struct {
	Time   time.Time `json:"time"`
	Server string    `json:"server"`
	Ready  bool      `json:"ready"`
	Reason string    `json:"reason,omitempty"` // why the broker is not ready

	Slot         uint64  `json:"applied_slot"`
	LagSlots     int64   `json:"follow_lag_slots"`
	Records      float64 `json:"records_per_second"` // committed by this broker
	Commits      float64 `json:"commits_per_second"`
	Requests     float64 `json:"requests_per_second"`
	InFlight     int64   `json:"requests_in_flight"`
	PushedBack   float64 `json:"pushed_back_per_second"` // requests answered with 429 or 503
	BytesIn      float64 `json:"bytes_in_per_second"`
	BytesOut     float64 `json:"bytes_out_per_second"`
	MemoryUsed   int64   `json:"memory_used_bytes"`
	MemoryLimit  int64   `json:"memory_limit_bytes"`
	StateUsed    int64   `json:"state_bytes"`
	StateLimit   int64   `json:"state_limit_bytes"`
	StateLeft    float64 `json:"state_left_seconds,omitempty"` // until appends are refused; left out if unknown
	DataLost     int64   `json:"data_lost_reads"`              // since the broker started
	StoreErrors  float64 `json:"store_errors_per_second"`
	StoreSeconds float64 `json:"store_seconds_per_request"` // mean between the snapshots; 0 without requests

	Store  map[string]float64 `json:"store_requests_per_second"` // by verb
	Topics []topTopic         `json:"topics"`

	Consumers []topConsumer `json:"consumers"`
	Queues    []topQueue    `json:"queues"`
	Peers     []topPeer     `json:"peers"` // the other brokers of the log
}

// topTopic is one row.
type topTopic struct {
	Name       string     `json:"name"`
	Partitions int        `json:"partitions"`
	Records    int64      `json:"records"`
	Rate       float64    `json:"records_per_second"`
	Stored     int64      `json:"stored_bytes"`
	StoredRate float64    `json:"stored_bytes_per_second"`
	Last       *time.Time `json:"last_timestamp"`

	ends int64 // sum of the end offsets of all partitions
}

// viewOf compares two snapshots of a broker.
func viewOf(before, now *snapshot, server, order string) *topView {
	seconds := now.at.Sub(before.at).Seconds()
	// If a counter fell, the broker was restarted: the rate is then 0.
	rate := func(name, label, value string) float64 {
		return max(0, now.sum(name, label, value)-before.sum(name, label, value)) / seconds
	}
	v := &topView{
		Time: now.at.UTC(), Server: server, Ready: now.notReady == "", Reason: now.notReady,
		Slot: uint64(now.sum("seb_applied_slot", "", "")), LagSlots: int64(now.sum("seb_follow_lag_slots", "", "")),
		Records: rate("seb_records_committed_total", "", ""), Commits: rate("seb_commits_total", "", ""),
		Requests: rate("seb_http_requests_total", "", ""), InFlight: int64(now.sum("seb_http_requests_in_flight", "", "")),
		PushedBack: rate("seb_http_requests_total", "code", "429") + rate("seb_http_requests_total", "code", "503"),
		BytesIn:    rate("seb_http_request_bytes_total", "", ""), BytesOut: rate("seb_http_response_bytes_total", "", ""),
		MemoryUsed: int64(now.sum("seb_memory_used_bytes", "", "")), MemoryLimit: int64(now.sum("seb_memory_limit_bytes", "", "")),
		StateUsed: int64(now.sum("seb_state_bytes", "", "")), StateLimit: int64(now.sum("seb_state_limit_bytes", "", "")),
		StateLeft:   now.sum("seb_state_left_seconds", "", ""),
		DataLost:    int64(now.sum("seb_data_lost_reads_total", "", "")),
		StoreErrors: rate("seb_store_requests_total", "outcome", "error"),
		Store:       map[string]float64{},
	}
	for verb := range now.values("seb_store_requests_total", "verb") {
		v.Store[verb] = rate("seb_store_requests_total", "verb", verb)
	}
	v.StoreSeconds = meanSeconds(before, now)
	v.Topics = topicsOf(before.topics, now.topics, seconds)
	v.sort(order)
	v.Consumers, v.Queues, v.Peers = consumersOf(now), queuesOf(now), peersOf(now.peers)
	return v
}

// meanSeconds is how long a store request between two snapshots took on average.
func meanSeconds(before, now *snapshot) float64 {
	var seconds, count float64
	for l, sign := range map[*snapshot]float64{before: -1, now: 1} {
		for _, m := range l.metrics["seb_store_request_duration_seconds"].GetMetric() {
			seconds += sign * m.GetHistogram().GetSampleSum()
			count += sign * float64(m.GetHistogram().GetSampleCount())
		}
	}
	if count <= 0 || seconds <= 0 {
		return 0
	}
	return seconds / count
}

// topicsOf returns a row for each topic. A topic that is new, or that was deleted and created again, has no
// rate yet.
func topicsOf(before, now []seb.Topic, seconds float64) []topTopic {
	old := map[string]topTopic{}
	for _, t := range before {
		old[t.Name] = topRowOf(t)
	}
	rows := make([]topTopic, len(now))
	for i, t := range now {
		row := topRowOf(t)
		if was, known := old[t.Name]; known && row.ends >= was.ends {
			row.Rate = float64(row.ends-was.ends) / seconds
			row.StoredRate = max(0, float64(row.Stored-was.Stored)) / seconds
		}
		rows[i] = row
	}
	return rows
}

// topRowOf sums up a topic's partitions.
func topRowOf(t seb.Topic) topTopic {
	row := topTopic{Name: t.Name, Partitions: len(t.Partitions)}
	for _, p := range t.Partitions {
		row.ends += int64(p.End)
		row.Records += int64(p.End - p.Start)
		row.Stored += p.Bytes
		if !p.LastTimestamp.IsZero() && (row.Last == nil || p.LastTimestamp.After(*row.Last)) {
			row.Last = &p.LastTimestamp
		}
	}
	return row
}

// sort sorts the topics as order says: those with the largest figures first, or by name.
func (v *topView) sort(order string) {
	by := map[string]func(a, b topTopic) int{
		"rate":    func(a, b topTopic) int { return cmp.Compare(b.Rate, a.Rate) },
		"records": func(a, b topTopic) int { return cmp.Compare(b.Records, a.Records) },
		"stored":  func(a, b topTopic) int { return cmp.Compare(b.Stored, a.Stored) },
		"name":    func(topTopic, topTopic) int { return 0 },
	}[order]
	slices.SortFunc(v.Topics, func(a, b topTopic) int { return cmp.Or(by(a, b), strings.Compare(a.Name, b.Name)) })
}

// topLine is a line of the screen.
type topLine struct {
	text  string
	color color
}

// lines returns the view as lines: at most rows of them, or all if rows is 0.
func (v *topView) lines(rows int) []topLine {
	at := v.Time.Format("15:04:05Z")
	if v.Topics == nil && !v.Ready {
		return []topLine{{fmt.Sprintf("%s  %s", v.Server, at), ""}, {"no response: " + v.Reason, red}}
	}
	state := topLine{"ready", green}
	if !v.Ready {
		state = topLine{"NOT ready: " + v.Reason, red}
	}
	lines := []topLine{
		{fmt.Sprintf("%s  %s  slot %d, %d behind", v.Server, at, v.Slot, v.LagSlots), ""},
		state,
		{fmt.Sprintf("http    %.1f requests/s, %d under way, %s/s in, %s/s out", v.Requests, v.InFlight, size(v.BytesIn), size(v.BytesOut)), ""},
		{fmt.Sprintf("log     %.1f records/s in %.1f commits/s", v.Records, v.Commits), ""},
		{"store   " + v.store(), ""},
		{fmt.Sprintf("memory  %s of %s, state %s of %s", size(v.MemoryUsed), size(v.MemoryLimit), size(v.StateUsed), size(v.StateLimit)), ""},
	}
	for _, trouble := range []struct {
		is   bool
		text string
	}{
		{v.DataLost > 0, fmt.Sprintf("%d reads met a missing or damaged object: run seb fsck", v.DataLost)},
		{v.stateWarning() != "", v.stateWarning()},
		{v.StoreErrors > 0, fmt.Sprintf("%.1f store requests/s fail", v.StoreErrors)},
		{v.PushedBack > 0, fmt.Sprintf("%.1f requests/s are refused because the broker or its store is busy or down (429, 503)", v.PushedBack)},
	} {
		if trouble.is {
			lines = append(lines, topLine{trouble.text, red})
		}
	}
	tables := append([][]string{v.table()}, v.workTables()...)
	if len(v.Peers) > 0 {
		tables = append(tables, v.peerTable())
	}
	if rows > 0 {
		tables = fit(tables, rows-len(lines)-1)
	}
	for _, table := range tables {
		lines = append(lines, topLine{})
		for _, row := range table {
			lines = append(lines, topLine{row, ""})
		}
	}
	if rows > 0 {
		lines = lines[:min(len(lines), rows)]
	}
	return lines
}

// stateWarning says that the broker's memory for the state is half full, or fuller.
func (v *topView) stateWarning() string {
	return seb.StateUse{Used: v.StateUsed, Limit: v.StateLimit, Left: time.Duration(v.StateLeft * float64(time.Second))}.Warning()
}

// store returns the rates of requests to the store, by verb, and their mean duration.
func (v *topView) store() string {
	var parts []string
	for _, verb := range slices.Sorted(maps.Keys(v.Store)) {
		parts = append(parts, fmt.Sprintf("%s %.1f/s", verb, v.Store[verb]))
	}
	if v.StoreSeconds > 0 {
		parts = append(parts, fmt.Sprintf("%.1f ms each", v.StoreSeconds*1e3))
	}
	return strings.Join(parts, ", ")
}

// table returns the heading and a row per topic.
func (v *topView) table() []string {
	return tableOf(func(p *printer) {
		p.printf("TOPIC\tPARTITIONS\tRECORDS\tRECORDS/S\tSTORED\tSTORED/S\tLAST RECORD\n")
		for _, row := range v.Topics {
			last := "-"
			if row.Last != nil {
				last = row.Last.UTC().Format(time.RFC3339)
			}
			p.printf("%s\t%d\t%d\t%.1f\t%s\t%s\t%s\n", row.Name, row.Partitions, row.Records, row.Rate, size(row.Stored), size(row.StoredRate), last)
		}
	})
}
