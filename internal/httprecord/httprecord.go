// Package httprecord maps a record to HTTP headers: the record's key, timestamp, headers and media
// type. The value is the HTTP body. Reads of one record and pushes use the same mapping.
//
// A key that an HTTP header can't carry is sent in base64. Record headers that HTTP can't carry are
// left out, and Seb-Omitted-Headers counts them.
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

// The HTTP headers of a record.
const (
	KeyHeader       = "Seb-Key"
	KeyBase64Header = "Seb-Key-Base64" // for a key that an HTTP header can't carry unchanged
	TimestampHeader = "Seb-Timestamp"
	LogTimeHeader   = "Seb-Log-Time"
	HeaderPrefix    = "Seb-Header-"         // followed by the name of a record header
	OmittedHeader   = "Seb-Omitted-Headers" // the number of record headers that HTTP can't carry
)

// TimestampLayout is RFC 3339 with milliseconds, the precision of records' timestamps. LogTimeLayout has microseconds, the
// precision of the times of commits.
const (
	TimestampLayout = "2006-01-02T15:04:05.000Z07:00"
	LogTimeLayout   = "2006-01-02T15:04:05.000000Z07:00"
)

// ContentType is the record header with the media type of the value, as in the Kafka
// binding of CloudEvents.
const ContentType = "content-type"

// Headers iterates over the names and values of a record's headers, in the record's order.
type Headers = iter.Seq2[string, []byte]

// Describe sets the HTTP headers of a record, except Content-Type. A nil key means no key. A zero logTime is left out.
func Describe(to http.Header, key []byte, at, logTime time.Time, headers Headers) {
	to.Set(TimestampHeader, at.UTC().Format(TimestampLayout))
	if !logTime.IsZero() {
		to.Set(LogTimeHeader, logTime.UTC().Format(LogTimeLayout))
	}
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

// MediaType returns the media type in a record's headers, or the string otherwise if the headers have no
// valid media type.
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

// Fits reports whether an HTTP header can carry the value v unchanged: v must be UTF-8 without
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

// IsToken reports whether s is a token (RFC 9110, 5.6.2), so that an HTTP header's name may contain it.
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
