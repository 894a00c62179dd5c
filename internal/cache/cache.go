// Package cache keeps verified batches in memory and, below that, in a
// directory, so that brokers don't pay the store twice for the same batch.
//
// It is not a store. Everything in it may vanish or be damaged at any time. A batch
// that does not verify is a miss, never an error and never wrong bytes. The cache
// does not check the log's rules: its callers put in only bytes that
// the rules allow them to use, under names that are never reused.
//
// The package runs no background work. The only goroutines it starts are those
// of [Cache.Flight], one for each call under way; [Cache.Close] waits for them.
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
	// Tag tells objects of the same kind and seq apart: 64 bits of a commit's
	// nonce, or of a data object's unique id.
	Tag uint64
}

// Range names the bytes of one batch inside an object.
type Range struct {
	Object Object
	Pos    uint32 // where the batch begins in the object, in bytes
	Size   uint32 // of the batch, in bytes
	CRC    uint32 // the CRC-32C that the batch's header carries, as the log's state knows it
}

// Options configure a [Cache].
type Options struct {
	// Cluster is the id of the cluster whose batches these are. Entries on
	// disk that belong to another are dropped.
	Cluster [16]byte
	// MemoryMax bounds the batches in memory, in bytes; see [Cache.SetMemoryMax].
	MemoryMax int64
	// Dir holds the disk cache; "" means none. The cache owns the files in it
	// that match "*.sebcache", and removes them as it likes. It has to belong to
	// this process's user, and no other user may write to it.
	Dir string
	// DiskBytes bounds the size of the files in Dir; 0 means no disk cache.
	DiskBytes int64
	// Logger is told once per kind of trouble with the disk. nil discards.
	Logger *slog.Logger
}

// Stats tells what the cache holds, and did since it was opened.
type Stats struct {
	MemoryBytes   int64 // what the entries in memory take, overhead included
	MemoryMax     int64
	MemoryEntries int
	MemoryHits    uint64 // Gets answered from memory
	MemoryEvicted uint64 // entries that gave way to others

	DiskBytes    int64 // size of all segments
	DiskEntries  int
	DiskSegments int
	DiskHits     uint64 // Gets answered from disk
	DiskCorrupt  uint64 // entries or files that did not verify
	DiskErrors   uint64 // calls of the file system that did not do what they should
	DiskEvicted  uint64 // segments that gave way to others

	Misses uint64 // Gets answered with nothing
}

// Cache is safe for concurrent use.
type Cache struct {
	memory  memory
	disk    *disk // nil without a disk cache
	flights flights

	diskHits, misses atomic.Uint64
}

// Open opens the cache. A directory that can't be made, is read-only or is locked by
// another process does not stop a broker, which works without a disk cache: Open
// logs a warning and uses memory only. During a rolling restart the
// old process may hold the lock for some seconds. An error means that a bound is
// negative, or that the directory is unsafe: see [ErrUnsafe].
func Open(opts Options) (*Cache, error) {
	if opts.MemoryMax < 0 || opts.DiskBytes < 0 {
		return nil, fmt.Errorf("open cache: %d bytes of memory and %d of disk: neither may be negative", opts.MemoryMax, opts.DiskBytes)
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

// Get returns the batch that r names, from memory or else from disk, where it
// is verified on the way in; nil if it is in neither. The bytes are shared and
// read-only.
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

// Add puts the batch b, which was committed just now, into memory only: it is
// the likeliest to be read, and the cheapest to fetch again later. The cache
// owns b from now on, so the caller must not change it. Add ignores a batch that is
// plainly not the one that r names. b should be an allocation of its own, so
// that the cache counts its memory right: a part of a larger one keeps all of it alive.
func (c *Cache) Add(r Range, b []byte) {
	if matches(r, b) {
		c.memory.add(r, b)
	}
}

// AddFetched puts the batch b, which came from the store and was verified, into
// memory and onto disk. Otherwise it is like Add.
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

// SetMemoryMax changes the bound of the batches in memory, and evicts down to
// it at once. The bound is of what entries take: their bytes, and an overhead
// for each.
func (c *Cache) SetMemoryMax(bytes int64) { c.memory.setMax(bytes) }

// Shrink evicts from memory until that many bytes are freed, or nothing is
// left, and returns how many were. The bound stays: the owner of the memory
// lowers it if the room is to stay free.
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

// Close waits for the flights under way and unlocks the directory. The cache still
// serves from memory; new flights get [ErrClosed].
func (c *Cache) Close() error {
	c.flights.close()
	if c.disk != nil {
		return c.disk.close()
	}
	return nil
}
