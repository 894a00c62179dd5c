package httpapi

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/simple-event-broker/seb"
)

// answers are the media types in which a read can answer. The first is the default.
var answers = []string{typeNDJSON, typeJSON, typeBatch, typeEvents}

// negotiate returns the element of answers that the Accept headers prefer (RFC 9110, section 12.5.1). If several
// types have the highest quality, the type with the most specific range wins. Among types with equally specific
// ranges, the type whose range comes first in the header wins.
func negotiate(accept []string) (string, error) {
	ranges := strings.Join(accept, ",")
	if strings.TrimSpace(ranges) == "" {
		return answers[0], nil
	}
	var best string
	var bestQuality float64
	var bestAt mediaRank
	for _, candidate := range answers {
		quality, at := qualityOf(ranges, candidate)
		if quality > bestQuality || quality == bestQuality && quality > 0 && at.before(bestAt) {
			best, bestQuality, bestAt = candidate, quality, at
		}
	}
	if best == "" {
		return "", &seb.Error{
			Code:   codeNotAcceptable,
			Detail: fmt.Sprintf("records can't be served as %q", ranges),
			Hint:   "accept one of " + strings.Join(answers, ", "),
		}
	}
	return best, nil
}

// mediaRank ranks a range of an Accept header by how specific it is, then by its place in the
// header.
type mediaRank struct {
	specificity int // 2: type/subtype, 1: type/*, 0: */*
	index       int
}

func (a mediaRank) before(b mediaRank) bool {
	if a.specificity != b.specificity {
		return a.specificity > b.specificity
	}
	return a.index < b.index
}

// qualityOf finds the most specific range of an Accept header that matches a media type, and returns that
// range's quality and rank. If no range matches, the quality is 0.
func qualityOf(ranges, candidate string) (quality float64, at mediaRank) {
	at.specificity = -1
	major, _, _ := strings.Cut(candidate, "/")
	i := 0
	for part := range strings.SplitSeq(ranges, ",") {
		name, params, _ := strings.Cut(part, ";")
		specificity := -1
		switch strings.ToLower(strings.TrimSpace(name)) {
		case candidate:
			specificity = 2
		case major + "/*":
			specificity = 1
		case "*/*":
			specificity = 0
		}
		if specificity > at.specificity {
			quality, at = parseQuality(params), mediaRank{specificity, i}
		}
		i++
	}
	return quality, at
}

// parseQuality returns the value of the parameter q of a media range. If q is missing or invalid, the
// quality is 1.
func parseQuality(params string) float64 {
	for p := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(p, "=")
		if strings.EqualFold(strings.TrimSpace(name), "q") {
			if q, err := strconv.ParseFloat(strings.TrimSpace(value), 64); err == nil && q >= 0 && q <= 1 {
				return q
			}
		}
	}
	return 1
}
