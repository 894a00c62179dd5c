// Package cache keeps verified batches in memory and, below that, in a directory, so that a
// broker does not fetch the same batch from the store twice.
//
// The cache is not a store. Every batch in it may vanish or be damaged at any time. A batch that
// does not verify is a miss, never an error and never wrong bytes. The cache does not know the
// rules of the log: callers must add only bytes that those rules allow them to use, under names
// that are never reused.
//
// The package runs no background work. It starts goroutines only in [Cache.Flight], one for each
// running call; [Cache.Close] waits for them.
package cache

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/simple-event-broker/seb/internal/record"
)

// Object names one immutable object of the cluster.
type Object struct {
	Kind byte
	Seq  uint64
	// Tag distinguishes objects of the same kind and seq: 64 bits of a commit's nonce, or a data
	// object's id.
	Tag uint64
}

// Range names the bytes of one batch inside an object.
type Range struct {
	Object Object
	Pos    uint32 // position of the batch in the object, in bytes
	Size   uint32 // size of the batch in bytes
	CRC    uint32 // CRC-32C that the batch's header must have, from the state
}

// Options configure a [Cache].
type Options struct {
	// Cluster is the id of the cluster whose batches the cache keeps. Entries on disk of another
	// cluster are dropped.
	Cluster [16]byte
	// MemoryMax bounds the batches in memory, in bytes; see [Cache.SetMemoryMax].
	MemoryMax int64
	// Dir is the directory of the disk cache; "" means no disk cache. The cache owns the files
	// in Dir that match "*.sebcache", and may remove them at any time. Dir must belong to the
	// user of this process, and no other user may write to it.
	Dir string
	// DiskBytes bounds the size of the files in Dir; 0 means no disk cache.
	DiskBytes int64
	// Logger gets a warning at the first problem of each kind with the disk. nil discards the
	// warnings.
	Logger *slog.Logger
}

// Stats says what the cache holds, and what it did since it was opened.
type Stats struct {
	MemoryBytes   int64 // memory that the entries take, including overhead
	MemoryMax     int64
	MemoryEntries int
	MemoryHits    uint64 // Gets answered from memory
	MemoryEvicted uint64 // entries removed from memory to make room

	DiskBytes    int64 // size of all segments
	DiskEntries  int
	DiskSegments int
	DiskHits     uint64 // Gets answered from disk
	DiskCorrupt  uint64 // entries or files that did not verify
	DiskErrors   uint64 // failed calls to the file system
	DiskEvicted  uint64 // segments removed to make room

	Misses uint64 // Gets that found no batch
}

// Cache is safe for concurrent use.
type Cache struct {
	memory  memory
	disk    *disk // nil without a disk cache
	flights flights

	diskHits, misses atomic.Uint64
}

// Open opens the cache. If the directory can't be created, is read-only, or is locked by another
// process, Open logs a warning and uses memory only, because a broker works without a disk
// cache. During a rolling restart the old process may hold the lock for some seconds. Open
// returns an error if a bound is negative, or if the directory is unsafe: see [ErrUnsafe].
func Open(opts Options) (*Cache, error) {
	if opts.MemoryMax < 0 || opts.DiskBytes < 0 {
		return nil, fmt.Errorf("open cache: %d bytes of memory and %d bytes of disk: neither may be negative", opts.MemoryMax, opts.DiskBytes)
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Cache{}
	c.memory.init(opts.MemoryMax)
	c.flights.running = make(map[any]*flight)
	if opts.Dir == "" || opts.DiskBytes == 0 {
		return c, nil
	}
	d, err := openDisk(opts)
	if errors.Is(err, ErrUnsafe) {
		return nil, err
	}
	if err != nil {
		opts.Logger.Warn("running without a disk cache", "dir", opts.Dir, "err", err)
		return c, nil
	}
	c.disk = d
	return c, nil
}

// Get returns the batch that r names, from memory or else from disk; nil if it is in neither. It
// verifies a batch that it reads from disk. The bytes are shared and read-only.
func (c *Cache) Get(r Range) []byte {
	if b := c.memory.get(r); b != nil {
		return b
	}
	var b []byte
	if c.disk != nil {
		b = c.disk.get(r)
	}
	if b == nil {
		c.misses.Add(1)
		return nil
	}
	c.diskHits.Add(1)
	c.memory.add(r, b)
	return b
}

// Add puts the batch b, which was just committed, into memory but not onto disk: readers are
// likely to want it now, and it is cheap to fetch again later. From then on the caller must not
// change b. Add ignores b if the size or CRC of b differs from that in r. b should be an
// allocation of its own: a slice of a larger allocation keeps the whole allocation in memory,
// and the cache counts only the slice.
func (c *Cache) Add(r Range, b []byte) {
	if matches(r, b) {
		c.memory.add(r, b)
	}
}

// AddFetched puts the batch b, which the caller fetched from the store and verified, into memory
// and onto disk. In all other respects it is like Add.
func (c *Cache) AddFetched(r Range, b []byte) {
	if !matches(r, b) {
		return
	}
	c.memory.add(r, b)
	if c.disk != nil {
		c.disk.add(r, b)
	}
}

// matches reports whether b can be the batch that r names, without reading all of it.
func matches(r Range, b []byte) bool {
	return len(b) >= record.HeaderSize && uint64(len(b)) == uint64(r.Size) && record.CRC(b) == r.CRC
}

// SetMemoryMax changes the bound on the memory of entries, in bytes, and evicts at once the
// entries that exceed it. Each entry counts with its batch and a fixed overhead.
func (c *Cache) SetMemoryMax(bytes int64) { c.memory.setMax(bytes) }

// Shrink evicts entries from memory until that many bytes are freed, or no entry is left, and
// returns how many bytes it freed. It does not change the bound: a caller that wants the memory
// to stay free also calls SetMemoryMax.
func (c *Cache) Shrink(bytes int64) int64 { return c.memory.shrink(bytes) }

// Stats returns the current figures.
func (c *Cache) Stats() Stats {
	var s Stats
	c.memory.stats(&s)
	if c.disk != nil {
		c.disk.stats(&s)
	}
	s.DiskHits, s.Misses = c.diskHits.Load(), c.misses.Load()
	return s
}

// Close waits for the running flights and unlocks the directory. Get still serves from memory;
// new flights get [ErrClosed].
func (c *Cache) Close() error {
	c.flights.close()
	if c.disk != nil {
		return c.disk.close()
	}
	return nil
}
