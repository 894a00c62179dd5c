package digest

import "github.com/simple-event-broker/seb/internal/format"

// Key returns the hash of an idempotency key. The same key has different hashes in different
// scopes, and for different callers. scope is a topic's id, or -1-i for append i of a commit.
// caller is the id of an API key; 0 stands for all callers.
func Key(scope int64, key string, caller uint64) format.Digest {
	d := New()
	d.Number(scope)
	d.Texts(key)
	if caller != 0 {
		d.Number(int64(caller))
	}
	return d.Sum()
}
