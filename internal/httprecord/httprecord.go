// Package httprecord says how HTTP headers carry what stands beside a record's
// value: its key, its timestamp, its headers, and what kind of value it is. Reads of
// one record and pushed records look alike by it.
//
// It writes headers and no more: which caller may see a record, and where it comes from, is
// its callers' business. Nothing is lost without a word: such a key as HTTP can't
// carry comes in base64, and headers that it can't carry are counted.
package httprecord

import (
	"encoding/base64"
	"iter"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// The headers that stand beside a value.
const (
	KeyHeader       = "Seb-Key"
	KeyBase64Header = "Seb-Key-Base64" // of a key that HTTP can't carry as it is
	TimestampHeader = "Seb-Timestamp"
	HeaderPrefix    = "Seb-Header-"         // and the name of a record's header
	OmittedHeader   = "Seb-Omitted-Headers" // how many headers of the record HTTP can't carry
)

// TimestampLayout is RFC 3339 with the log's precision.
const TimestampLayout = "2006-01-02T15:04:05.000Z07:00"

// ContentType is the record header that says what a value is, as in the Kafka
// binding of CloudEvents.
const ContentType = "content-type"

// Headers are a record's, by name and value in their order.
type Headers = iter.Seq2[string, []byte]

// Describe sets the headers for what a raw value can't say. A nil key means no key.
func Describe(to http.Header, key []byte, at time.Time, headers Headers) {
	to.Set(TimestampHeader, at.UTC().Format(TimestampLayout))
	switch {
	case key == nil:
	case Fits(key):
		to.Set(KeyHeader, string(key))
	default:
		to.Set(KeyBase64Header, base64.StdEncoding.EncodeToString(key))
	}
	omitted := 0
	for name, value := range headers {
		if !IsToken(name) || !Fits(value) {
			omitted++
			continue
		}
		to.Add(HeaderPrefix+name, string(value))
	}
	if omitted > 0 {
		to.Set(OmittedHeader, strconv.Itoa(omitted))
	}
}

// MediaType returns what a record's headers say its value is, otherwise if they
// say nothing that can be a Content-Type.
func MediaType(headers Headers, otherwise string) string {
	for name, value := range headers {
		if strings.EqualFold(name, ContentType) && Fits(value) {
			if _, _, err := mime.ParseMediaType(string(value)); err == nil {
				return string(value)
			}
		}
	}
	return otherwise
}

// Fits reports whether v survives as the value of an HTTP header: text without
// control characters, and without spaces at its ends.
func Fits[T ~string | ~[]byte](v T) bool {
	if len(v) > 0 && (v[0] == ' ' || v[len(v)-1] == ' ') || !utf8.ValidString(string(v)) {
		return false
	}
	for i := range len(v) {
		if v[i] < ' ' || v[i] == 0x7f {
			return false
		}
	}
	return true
}

// IsToken reports whether s may be part of an HTTP header's name (RFC 9110, 5.6.2).
func IsToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		alphanumeric := c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !alphanumeric && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return s != ""
}
