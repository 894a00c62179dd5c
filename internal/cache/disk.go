package cache

import (
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
)

const (
	segmentSuffix = ".sebcache"
	lockName      = "lock" + segmentSuffix

	// segmentBytesMax bounds the size of a segment (a file of entries). A full cache drops a whole
	// segment at a time.
	segmentBytesMax = 64 << 20
	// segmentsMin is the least number of segments in a full disk cache, so that dropping the oldest
	// segment drops at most an eighth of the cache.
	segmentsMin = 8

	// indexMax bounds the entries on disk: each entry takes about 40 bytes of memory, so all of
	// them take about 10 MiB. That is enough for 1 GiB of disk with batches of 4 KiB on average.
	indexMax = 1 << 18

	// offsetMax bounds where an entry may begin in a file, since place.at has 32 bits.
	offsetMax = math.MaxUint32
)

// disk is the lower layer of the cache. It keeps entries in files, called segments, that only grow. When
// the cache is full, disk drops the oldest segment as a whole. disk opens a file for each read and
// write: this costs little compared with the read itself, needs no descriptors while the cache is idle,
// and shows at once if a file was removed.
type disk struct {
	dir          string
	cluster      [16]byte
	key          *key
	bytesMax     int64
	segmentBytes int64
	indexMax     int // the constant indexMax; tests set a smaller number
	log          *slog.Logger
	lock         *os.File
	seed         maphash.Seed

	// openWrite opens a segment for writing; tests replace it by a function that fails.
	openWrite func(path string, flag int) (segmentWriter, error)

	warnCorrupt, warnFailed sync.Once

	mu       sync.Mutex
	closed   bool
	segments []*segment // oldest first
	// index finds entries by a hash of their Range. It does not keep the Range itself, to stay
	// small. If two hashes collide, get finds an entry with another Range, and returns nothing.
	index map[uint64]place
	// rolling is true while one call of add creates a new segment. Other calls of add don't wait
	// for the new segment: they return without writing their entries.
	rolling                  bool
	nextID                   uint64
	corrupt, failed, evicted uint64
}

type segmentWriter interface {
	io.WriterAt
	io.Closer
}

// segment is one file. disk.mu guards all fields of a segment except path.
type segment struct {
	id     uint64
	path   string
	size   int64 // size of the file, including entries that are being written
	full   bool  // no further entries may be appended
	hashes []uint64
}

type place struct {
	seg *segment
	at  uint32
}

// openDisk locks the directory and indexes its entries. If other users may write to the directory, it
// returns an error that wraps [ErrUnsafe].
func openDisk(opts Options) (*disk, error) {
	d := &disk{
		dir: opts.Dir, cluster: opts.Cluster, log: opts.Logger,
		bytesMax:     opts.DiskBytes,
		segmentBytes: max(1, min(segmentBytesMax, opts.DiskBytes/segmentsMin)),
		indexMax:     indexMax,
		seed:         maphash.MakeSeed(),
		index:        make(map[uint64]place),
		nextID:       1,
		openWrite: func(path string, flag int) (segmentWriter, error) {
			return os.OpenFile(path, flag, 0o600)
		},
	}
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make cache directory: %w", err)
	}
	if err := checkPrivate(d.dir, othersWrite); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(d.dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock of cache directory: %w", err)
	}
	if err := flock(lock); err != nil {
		return nil, errors.Join(fmt.Errorf("lock cache directory, which another process may be using: %w", err), lock.Close())
	}
	d.lock = lock
	if d.key, err = openKey(filepath.Join(d.dir, keyName)); err == nil {
		err = d.load()
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return d, nil
}

func (d *disk) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	return d.lock.Close()
}

func (d *disk) hash(r Range) uint64 { return maphash.Comparable(d.seed, r) }

// get returns the batch of r, or nil if there is no entry for r or the entry does not verify.
func (d *disk) get(r Range) []byte {
	h := d.hash(r)
	d.mu.Lock()
	p, ok := d.index[h]
	ok = ok && !d.closed && int64(p.at)+entrySize(r) <= p.seg.size
	d.mu.Unlock()
	if !ok {
		return nil
	}
	e := make([]byte, entrySize(r))
	if err := readAt(p.seg.path, e, int64(p.at)); err != nil {
		d.readFailed(h, p, err)
		return nil
	}
	b, err := verifyEntry(d.key, d.cluster, r, e)
	if err != nil {
		d.foundCorrupt(p.seg.path, err)
		d.forget(h, p)
		return nil
	}
	return b
}

func readAt(path string, b []byte, at int64) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	_, err = f.ReadAt(b, at)
	return errors.Join(err, f.Close())
}

// readFailed removes an entry that could not be read. If the file is gone or too short, it removes the whole
// segment.
func (d *disk) readFailed(h uint64, p place, err error) {
	d.mu.Lock()
	evicted := !slices.Contains(d.segments, p.seg)
	d.mu.Unlock()
	switch {
	case evicted: // the segment was evicted after the lookup
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, io.EOF):
		d.foundCorrupt(p.seg.path, err)
		d.mu.Lock()
		d.dropLocked(p.seg)
		d.mu.Unlock()
		d.remove(p.seg)
	default:
		d.callFailed("read", err)
		d.forget(h, p)
	}
}

func (d *disk) forget(h uint64, p place) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.index[h] == p {
		delete(d.index, h)
	}
}

// add writes an entry, unless the disk cache has it already. If writing fails, the batch is not
// cached.
func (d *disk) add(r Range, b []byte) {
	h := d.hash(r)
	p, ok := d.reserve(h, entrySize(r))
	if !ok {
		return
	}
	if err := d.write(p, entryHeader(d.key, d.cluster, r, b), b); err != nil {
		d.writeFailed(p.seg, err)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if slices.Contains(d.segments, p.seg) {
		d.index[h] = p
		p.seg.hashes = append(p.seg.hashes, h)
	}
}

// writeFailed handles a failed write to segment s. The write may have left a hole in the file, and load
// does not find entries after a hole. So writeFailed marks s as full, and no more entries are appended.
// If s has no entries, writeFailed removes s, so that empty files don't pile up on a disk that fails all
// writes. If the disk is full, it also removes the oldest segment, to free space for other programs.
func (d *disk) writeFailed(s *segment, err error) {
	var dropped []*segment
	d.mu.Lock()
	if !slices.Contains(d.segments, s) { // already dropped; the goroutine that dropped it removes the file
		d.mu.Unlock()
		return
	}
	s.full = true
	if len(s.hashes) == 0 {
		d.dropLocked(s)
		dropped = append(dropped, s)
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		dropped = append(dropped, d.evictLocked(max(0, d.bytesLocked()-1), d.indexMax)...)
	}
	d.mu.Unlock()
	for _, s := range dropped {
		d.remove(s)
	}
	d.callFailed("write", err)
}

func (d *disk) write(p place, header, b []byte) error {
	f, err := d.openWrite(p.seg.path, os.O_WRONLY)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, int64(p.at)+entryHeaderSize)
	if err == nil {
		// Write the header after the batch: if load finds a header, the batch was written too.
		_, err = f.WriteAt(header, int64(p.at))
	}
	return errors.Join(err, f.Close())
}

// reserve finds room for an entry of n bytes at the end of the newest segment, or in a new
// segment. It returns false if there is no room, or if the disk cache has the entry already.
func (d *disk) reserve(h uint64, n int64) (place, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.index[h]; ok || d.closed || d.rolling || n > d.segmentBytes {
		return place{}, false
	}
	if len(d.index) >= d.indexMax && len(d.segments) > 0 {
		d.segments[len(d.segments)-1].full = true
	}
	if !d.hasRoomLocked(n) {
		if !d.rollLocked() || !d.hasRoomLocked(n) {
			return place{}, false
		}
	}
	s := d.segments[len(d.segments)-1]
	p := place{s, uint32(s.size)}
	s.size += n
	return p, true
}

// segmentEntriesMax returns how many entries a segment may have. This bound keeps one segment of tiny
// entries from filling the whole index.
func (d *disk) segmentEntriesMax() int { return max(1, d.indexMax/segmentsMin) }

func (d *disk) hasRoomLocked(n int64) bool {
	if len(d.segments) == 0 {
		return false
	}
	s := d.segments[len(d.segments)-1]
	return !s.full && s.size+n <= d.segmentBytes && d.bytesLocked()+n <= d.bytesMax &&
		len(s.hashes) < d.segmentEntriesMax()
}

// rollLocked drops old segments to make room for a new segment, and creates the new segment. It returns
// false if it can't create the file. It unlocks d.mu while it works on files.
func (d *disk) rollLocked() bool {
	dropped := d.evictLocked(d.bytesMax-d.segmentBytes, d.indexMax-d.segmentEntriesMax())
	s := &segment{id: d.nextID, path: d.path(d.nextID)}
	d.nextID++
	d.rolling = true
	d.mu.Unlock()

	for _, old := range dropped {
		d.remove(old)
	}
	f, err := d.openWrite(s.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		d.callFailed("create", err)
	}

	d.mu.Lock()
	d.rolling = false
	if err != nil {
		return false
	}
	d.segments = append(d.segments, s)
	return true
}

// evictLocked drops the oldest segments until at most bytesMax bytes and entriesMax entries remain. It
// returns the dropped segments; the caller must remove their files.
func (d *disk) evictLocked(bytesMax int64, entriesMax int) []*segment {
	var dropped []*segment
	for len(d.segments) > 0 && (d.bytesLocked() > bytesMax || len(d.index) > entriesMax) {
		s := d.segments[0]
		d.dropLocked(s)
		d.evicted++
		dropped = append(dropped, s)
	}
	return dropped
}

// dropLocked removes a segment from d.segments and its entries from d.index. The file remains.
func (d *disk) dropLocked(s *segment) {
	d.segments = slices.DeleteFunc(d.segments, func(o *segment) bool { return o == s })
	for _, h := range s.hashes {
		if d.index[h].seg == s {
			delete(d.index, h)
		}
	}
}

func (d *disk) bytesLocked() int64 {
	var n int64
	for _, s := range d.segments {
		n += s.size
	}
	return n
}

func (d *disk) path(id uint64) string {
	return filepath.Join(d.dir, fmt.Sprintf("%020d%s", id, segmentSuffix))
}

// remove removes the file of a segment that was dropped.
func (d *disk) remove(s *segment) {
	if err := os.Remove(s.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.callFailed("remove", err)
	}
}

func (d *disk) foundCorrupt(path string, err error) {
	d.mu.Lock()
	d.corrupt++
	d.mu.Unlock()
	d.warnCorrupt.Do(func() {
		d.log.Warn("disk cache is damaged; the broker reads damaged batches from the store again", "file", path, "err", err)
	})
}

func (d *disk) callFailed(call string, err error) {
	d.mu.Lock()
	d.failed++
	d.mu.Unlock()
	d.warnFailed.Do(func() {
		d.log.Warn("disk cache failed; some batches are not cached", "dir", d.dir, "call", call, "err", err)
	})
}

func (d *disk) stats(s *Stats) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s.DiskBytes, s.DiskEntries, s.DiskSegments = d.bytesLocked(), len(d.index), len(d.segments)
	s.DiskCorrupt, s.DiskErrors, s.DiskEvicted = d.corrupt, d.failed, d.evicted
}
