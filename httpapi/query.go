package httpapi

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/simple-event-broker/seb"
)

// query has the parameters of a request's query. The action knows all of them, and each was given once.
type query map[string]string

// parseQuery reads r's query. It refuses parameters that known does not list, and all Seb- headers except
// Seb-Request-Id.
func parseQuery(r *http.Request, known ...string) (query, error) {
	if err := refuseHeaders(r.Header); err != nil {
		return nil, err
	}
	return parseParameters(r, known...)
}

// refuseHeaders refuses all Seb- headers except Seb-Request-Id and the headers that known lists.
func refuseHeaders(header http.Header, known ...string) error {
	for name := range header {
		if strings.HasPrefix(name, "Seb-") && name != requestIDHeader && !slices.Contains(known, name) {
			return invalid("leave it out; only appends take headers of records", "the header %.100s has no effect here", name)
		}
	}
	return nil
}

// parseParameters is parseQuery without the check of headers, for callers that read Seb- headers.
func parseParameters(r *http.Request, known ...string) (query, error) {
	if r.URL.RawQuery == "" {
		return nil, nil // most requests have no query
	}
	values, err := parseValues(r, known...)
	if err != nil {
		return nil, err
	}
	return single(values)
}

// single returns values as a query. It refuses parameters that are given twice.
func single(values url.Values) (query, error) {
	q := make(query, len(values))
	for name, v := range values {
		if len(v) > 1 {
			return nil, invalid("give it once", "query parameter %q is given %d times", name, len(v))
		}
		q[name] = v[0]
	}
	return q, nil
}

// parseValues reads r's query. It refuses parameters that known does not list.
func parseValues(r *http.Request, known ...string) (url.Values, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, invalid("write &, ; and % inside a value as %26, %3B and %25", "the query is malformed: %v", err)
	}
	for name := range values {
		if !slices.Contains(known, name) {
			hint := "this request takes no query parameters"
			if len(known) > 0 {
				hint = "this request takes the parameters " + strings.Join(known, ", ")
			}
			return nil, invalid(hint, "unknown query parameter %.100q", name)
		}
	}
	return values, nil
}

// count returns the value of a parameter, which must be an integer from lo to hi. If the parameter is missing,
// count returns the default that the caller passes as otherwise.
func (q query) count(name string, lo, hi, otherwise int64) (int64, error) {
	s, given := q[name]
	if !given {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < lo || n > hi {
		most := "on"
		if hi < math.MaxInt64 {
			most = "to " + strconv.FormatInt(hi, 10)
		}
		return 0, invalid(fmt.Sprintf("use an integer from %d %s", lo, most), "%s is %.100q; it must be an integer from %d %s", name, s, lo, most)
	}
	return n, nil
}

// atMost returns the value of a parameter, which must be an integer of any size, at least 1. The caller replaces a large
// value by the largest that it allows.
func (q query) atMost(name string, otherwise int64) (int64, error) {
	if n, err := strconv.ParseInt(q[name], 10, 64); n > 0 && errors.Is(err, strconv.ErrRange) {
		return n, nil // the largest int64
	}
	return q.count(name, 1, math.MaxInt64, otherwise)
}

// partition returns the value of the parameter partition. If the parameter is missing, partition returns the
// default that the caller passes as otherwise.
func (q query) partition(otherwise int32) (int32, error) {
	n, err := q.count("partition", 0, math.MaxInt32, int64(otherwise))
	return int32(n), err
}

// position returns the position at which a read begins. If the query has an offset, that is the position. If
// the query has a time, the read begins at the first record that is not older than that time. If the query has
// neither, the read begins at the earliest record.
func (q query) position() (seb.Position, error) {
	offset, given := q["offset"]
	at, timed := q["time"]
	switch {
	case given && timed:
		return seb.Position{}, invalid("leave one of them out", "offset and time exclude each other: both say where to begin")
	case given:
		return parseOffset(offset)
	case !timed:
		return seb.Earliest, nil
	}
	t, err := parseTime("time", at)
	if err != nil {
		return seb.Position{}, err
	}
	return seb.AtTime(t), nil
}

// parseTime parses the value of a parameter that is a time.
func parseTime(name, value string) (time.Time, error) {
	t, err := parseTimestamp(value)
	if err != nil {
		return t, invalid("write a date, a time and a zone, such as 2026-01-31T12:00:00Z; if the zone begins with +, write %2B instead of +", "%s is %.100q; it must be RFC 3339, such as 2026-01-31T12:00:00Z, from 1970 on", name, value)
	}
	return t, nil
}

// parseOffset reads the parameter offset. It refuses times, for which there is the parameter time.
func parseOffset(s string) (seb.Position, error) {
	p, err := seb.ParsePosition(s)
	if _, timeErr := time.Parse(time.RFC3339Nano, s); err != nil || timeErr == nil || s == "" {
		return seb.Position{}, invalid("use earliest, latest, an offset such as 41, or -10 for the last ten records; time=2026-01-31T12:00:00Z is for times",
			"invalid offset %.100q", s)
	}
	return p, nil
}

// valuesParameter asks for values that are JSON as JSON.
const valuesParameter = "values"

// jsonValues tells whether the query has values=json: a value that is JSON is then returned as JSON, not as a string.
func (q query) jsonValues() (bool, error) {
	s, given := q[valuesParameter]
	if given && s != "json" {
		return false, invalid("leave it out, or use json", "%s is %.100q; it must be json", valuesParameter, s)
	}
	return given, nil
}

// duration returns the value of a parameter, which must be a duration from 0 to hi. If the parameter is missing,
// duration returns 0.
func (q query) duration(name string, hi time.Duration) (time.Duration, error) {
	s, given := q[name]
	if !given {
		return 0, nil
	}
	d, err := ParseDuration(s)
	if err != nil || d < 0 || d > hi {
		return 0, invalid(fmt.Sprintf("use a duration from 0s to %v, such as 500ms or 30s", hi), "%s is %.100q; it must be a duration such as 500ms or 30s, up to %v", name, s, hi)
	}
	return d, nil
}
