package objstore

import (
	"fmt"
	"strings"
)

// keyBytesMax is the length of the longest name that common file systems allow. S3 allows keys of 1,024
// bytes, so there is room for a prefix.
const keyBytesMax = 255

// CheckKey returns an error unless key is a valid key: segments of ASCII letters, digits, '-', '_' and '.',
// joined by '/'. No segment may be empty or begin with a dot, and the key may have at most 255 bytes. All
// stores allow exactly these keys. In a store in a directory, such a key never names a file outside of the
// directory, nor a file that the store or the system keeps there for itself.
//
// Do not use keys that differ only in case: some file systems take them for the same name.
func CheckKey(key string) error {
	if len(key) > keyBytesMax {
		return fmt.Errorf("key %.32q... is longer than %d bytes", key, keyBytesMax)
	}
	start := true // at the start of a segment
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

// CheckPrefix returns an error unless prefix followed by one letter is a valid key.
func CheckPrefix(prefix string) error {
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

// clampRange limits the range of a Get, n bytes from off, to an object of size bytes. It returns
// the limited range as [from, end).
func clampRange(off, n, size int64) (from, end int64) {
	from = min(off, size)
	if n < 0 || n > size-from {
		return from, size
	}
	return from, from + n
}

// checkRange returns an error if off is negative.
func checkRange(key string, off int64) error {
	if off < 0 {
		return fmt.Errorf("get %s: negative offset %d", key, off)
	}
	return nil
}

const (
	// pageKeysDefault is the largest size of a page of List if the caller sets no limit.
	pageKeysDefault = 1000
	// pageKeysMax is the largest size of a page, whatever limit the caller sets.
	pageKeysMax = 1 << 20
)

// pageLimit returns how many keys a page of List may have.
func pageLimit(limit int) int {
	if limit <= 0 {
		return pageKeysDefault
	}
	return min(limit, pageKeysMax)
}
