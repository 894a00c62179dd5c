// Package cache keeps verified batches, and parts of tables, so that a broker does not fetch the same batch from the
// store twice. It has two layers: memory, and below it files in a directory.
//
// The cache is not durable. Every batch in it may vanish or be damaged at any time. If a batch on
// disk is damaged, the cache behaves as if it did not have the batch. The cache does not know the
// rules of the log: callers must add only batches that are valid by those rules, under names that
// are never reused.
//
// The package starts goroutines only in [Cache.Flight], one for each running call. [Cache.Close]
// waits for them.
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

// Range names the bytes of one batch inside an object, or of one part of a table. What is said of batches holds for
// parts of tables too.
type Range struct {
	Object Object
	Pos    uint32 // position of the batch in the object, in bytes
	Size   uint32 // size of the batch in bytes
	CRC    uint32 // CRC-32C of the batch, according to the state of the log
	// Table says that the bytes are a part of a table. Its CRC is that of all its bytes.
	Table bool
}

// Options configure a [Cache].
type Options struct {
	// Cluster is the id of the cluster whose batches the cache keeps. Open drops entries of other
	// clusters from the disk.
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

	DiskBytes   int64 // size of all volumes
	DiskEntries int
	DiskVolumes int
	DiskHits    uint64 // Gets answered from disk
	DiskCorrupt uint64 // entries or files that did not verify
	DiskErrors  uint64 // failed calls to the file system
	DiskEvicted uint64 // volumes removed to make room

	Misses uint64 // Gets that found no batch
}

// Cache is a cache of batches. It is safe for concurrent use.
type Cache struct {
	memory  memory
	disk    *disk // nil without a disk cache
	flights flights

	diskHits, misses atomic.Uint64
}

// Open opens the cache. If the directory can't be created, is read-only, or is locked by another
// process, Open logs a warning and uses memory only, because a broker works without a disk
// cache. For example, during a restart the old process may still hold the lock. Open
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

// Get returns the batch that r names, from memory or else from disk. It returns nil if the cache does not
// have the batch, or if the batch on disk is damaged. Callers share the returned bytes and must not change
// them.
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

// Has reports whether Get would probably return the batch that r names. It counts as no use of the batch.
func (c *Cache) Has(r Range) bool { return c.memory.has(r) || c.disk != nil && c.disk.has(r) }

// Add keeps the batch b, which was just committed, in memory but not on disk. Readers are likely
// to want b soon, while it is still in memory. After the call, the caller must not change b. Add
// ignores b if the size or CRC of b is not the one in r. b should not be a slice of a larger
// allocation: the whole allocation would stay in memory, but the cache would count only b.
func (c *Cache) Add(r Range, b []byte) {
	if matches(r, b) {
		c.memory.add(r, b)
	}
}

// AddFetched keeps the batch b, which the caller fetched from the store and verified, both in memory and
// on disk. In all other respects, AddFetched does the same as Add.
func (c *Cache) AddFetched(r Range, b []byte) {
	if !matches(r, b) {
		return
	}
	c.memory.add(r, b)
	if c.disk != nil {
		c.disk.add(r, b)
	}
}

// matches reports whether b can be the batch that r names. It compares only the size, and the CRC in the
// batch's header.
func matches(r Range, b []byte) bool {
	if r.Table {
		return len(b) >= uncovered && uint64(len(b)) == uint64(r.Size)
	}
	return len(b) >= record.HeaderSize && uint64(len(b)) == uint64(r.Size) && record.CRC(b) == r.CRC
}

// SetMemoryMax changes how many bytes of memory the entries may take, and evicts entries at once if they
// take more. Each entry takes the size of its batch and a fixed overhead.
func (c *Cache) SetMemoryMax(bytes int64) { c.memory.setMax(bytes) }

// MemoryMax returns how many bytes of memory the entries may take now.
func (c *Cache) MemoryMax() int64 {
	c.memory.mu.Lock()
	defer c.memory.mu.Unlock()
	return c.memory.max
}

// Shrink evicts entries from memory until the given number of bytes is free, or no entry is left. It
// returns how many bytes it freed. New entries may take the memory again: a caller that wants the memory
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

// Close waits for the running calls of Flight and unlocks the directory. After Close, Get still returns
// batches from memory, and Flight starts no new calls but returns [ErrClosed].
func (c *Cache) Close() error {
	c.flights.close()
	if c.disk != nil {
		return c.disk.close()
	}
	return nil
}
