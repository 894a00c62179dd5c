package objstore

import (
	"fmt"
	"strings"
)

// keyBytesMax is what file systems allow a name, and leaves room for a prefix
// within S3's limit of 1,024 bytes.
const keyBytesMax = 255

// CheckKey answers an error unless key may name an object: segments of ASCII
// letters, digits, '-', '_' and '.', joined by '/', none empty or beginning
// with a dot, 255 bytes at most. Every store allows exactly these, so that a
// key means one object everywhere and, in a directory, can't leave it or be
// mistaken for a file the store or the system keeps there for itself.
//
// Keys that differ in case alone must not be used: some file systems hold them
// to be the same.
func CheckKey(key string) error {
	if len(key) > keyBytesMax {
		return fmt.Errorf("key %.32q... is longer than %d bytes", key, keyBytesMax)
	}
	start := true // of a segment
	for i := range len(key) {
		c := key[i]
		switch {
		case start && (c == '.' || c == '/'):
			return fmt.Errorf("key %q has a segment that is empty or begins with a dot", key)
		case !keyByte(c):
			return fmt.Errorf("key %q has a byte that is not a letter, digit or one of -_./", key)
		}
		start = c == '/'
	}
	if start {
		return fmt.Errorf("key %q is empty or ends with a slash", key)
	}
	return nil
}

// CheckPrefix answers an error unless some key could begin with prefix.
func CheckPrefix(prefix string) error {
	// Whatever follows the prefix, a letter is as good as any.
	if err := CheckKey(prefix + "x"); err != nil {
		return fmt.Errorf("prefix %q: %w", strings.ToValidUTF8(prefix, "?"), err)
	}
	return nil
}

func isKey(key string) bool { return CheckKey(key) == nil }

func keyByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		c == '-' || c == '_' || c == '.' || c == '/'
}

// clampRange turns a Get's range into [from, end) within an object of size
// bytes.
func clampRange(off, n, size int64) (from, end int64) {
	from = min(off, size)
	if n < 0 || n > size-from {
		return from, size
	}
	return from, from + n
}

// checkRange refuses offsets no object has.
func checkRange(key string, off int64) error {
	if off < 0 {
		return fmt.Errorf("get %s: negative offset %d", key, off)
	}
	return nil
}

const (
	// pageKeysDefault is what List returns at most if its caller sets no limit.
	pageKeysDefault = 1000
	// pageKeysMax keeps a careless limit from filling memory.
	pageKeysMax = 1 << 20
)

// pageLimit is how many keys a List's page may have.
func pageLimit(limit int) int {
	if limit <= 0 {
		return pageKeysDefault
	}
	return min(limit, pageKeysMax)
}
