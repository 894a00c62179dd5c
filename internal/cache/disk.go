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
	volumeSuffix = ".sebcache"
	lockName     = "lock" + volumeSuffix

	// volumeBytesMax bounds the size of a volume (a file of entries). A full cache drops a whole
	// volume at a time.
	volumeBytesMax = 64 << 20
	// volumesMin is the least number of volumes in a full disk cache, so that dropping the oldest
	// volume drops at most an eighth of the cache.
	volumesMin = 8

	// indexMax bounds the entries on disk: each entry takes about 40 bytes of memory, so all of
	// them take about 10 MiB. That is enough for 1 GiB of disk with batches of 4 KiB on average.
	indexMax = 1 << 18

	// offsetMax bounds where an entry may begin in a file, since place.at has 32 bits.
	offsetMax = math.MaxUint32
)

// disk is the lower layer of the cache. It keeps entries in files, called volumes, that only grow. When
// the cache is full, disk drops the oldest volume as a whole. disk opens a file for each read and
// write: this costs little compared with the read itself, needs no descriptors while the cache is idle,
// and shows at once if a file was removed.
type disk struct {
	dir         string
	cluster     [16]byte
	key         *key
	bytesMax    int64
	volumeBytes int64
	indexMax    int // the constant indexMax; tests set a smaller number
	log         *slog.Logger
	lock        *os.File
	seed        maphash.Seed

	// openWrite opens a volume for writing; tests replace it by a function that fails.
	openWrite func(path string, flag int) (volumeWriter, error)

	warnCorrupt, warnFailed sync.Once

	mu      sync.Mutex
	closed  bool
	volumes []*volume // oldest first
	// index finds entries by a hash of their Range. It does not keep the Range itself, to stay
	// small. If two hashes collide, get finds an entry with another Range, and returns nothing.
	index map[uint64]place
	// rolling is true while one call of add creates a new volume. Other calls of add don't wait
	// for the new volume: they return without writing their entries.
	rolling                  bool
	nextID                   uint64
	corrupt, failed, evicted uint64
}

type volumeWriter interface {
	io.WriterAt
	io.Closer
}

// volume is one file. disk.mu guards all fields of a volume except path.
type volume struct {
	id     uint64
	path   string
	size   int64 // size of the file, including entries that are being written
	full   bool  // no further entries may be appended
	hashes []uint64
}

type place struct {
	vol *volume
	at  uint32
}

// openDisk locks the directory and indexes its entries. If other users may write to the directory, it
// returns an error that wraps [ErrUnsafe].
func openDisk(opts Options) (*disk, error) {
	d := &disk{
		dir: opts.Dir, cluster: opts.Cluster, log: opts.Logger,
		bytesMax:    opts.DiskBytes,
		volumeBytes: max(1, min(volumeBytesMax, opts.DiskBytes/volumesMin)),
		indexMax:    indexMax,
		seed:        maphash.MakeSeed(),
		index:       make(map[uint64]place),
		nextID:      1,
		openWrite: func(path string, flag int) (volumeWriter, error) {
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

// has reports whether there is an entry for r.
func (d *disk) has(r Range) bool {
	_, ok := d.find(d.hash(r), r)
	return ok
}

// find returns where the disk has an entry with a hash.
func (d *disk) find(h uint64, r Range) (p place, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p, ok = d.index[h]
	return p, ok && !d.closed && int64(p.at)+entrySize(r) <= p.vol.size
}

// get returns the batch of r, or nil if there is no entry for r or the entry does not verify.
func (d *disk) get(r Range) []byte {
	h := d.hash(r)
	p, ok := d.find(h, r)
	if !ok {
		return nil
	}
	e := make([]byte, entrySize(r))
	if err := readAt(p.vol.path, e, int64(p.at)); err != nil {
		d.readFailed(h, p, err)
		return nil
	}
	b, err := verifyEntry(d.key, d.cluster, r, e)
	if err != nil {
		d.foundCorrupt(p.vol.path, err)
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
// volume.
func (d *disk) readFailed(h uint64, p place, err error) {
	d.mu.Lock()
	evicted := !slices.Contains(d.volumes, p.vol)
	d.mu.Unlock()
	switch {
	case evicted: // the volume was evicted after the lookup
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, io.EOF):
		d.foundCorrupt(p.vol.path, err)
		d.mu.Lock()
		d.dropLocked(p.vol)
		d.mu.Unlock()
		d.remove(p.vol)
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
		d.writeFailed(p.vol, err)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if slices.Contains(d.volumes, p.vol) {
		d.index[h] = p
		p.vol.hashes = append(p.vol.hashes, h)
	}
}

// writeFailed handles a failed write to volume s. The write may have left a hole in the file, and load
// does not find entries after a hole. So writeFailed marks s as full, and no more entries are appended.
// If s has no entries, writeFailed removes s, so that empty files don't pile up on a disk that fails all
// writes. If the disk is full, it also removes the oldest volume, to free space for other programs.
func (d *disk) writeFailed(s *volume, err error) {
	var dropped []*volume
	d.mu.Lock()
	if !slices.Contains(d.volumes, s) { // already dropped; the goroutine that dropped it removes the file
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
	f, err := d.openWrite(p.vol.path, os.O_WRONLY)
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

// reserve finds room for an entry of n bytes at the end of the newest volume, or in a new
// volume. It returns false if there is no room, or if the disk cache has the entry already.
func (d *disk) reserve(h uint64, n int64) (place, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.index[h]; ok || d.closed || d.rolling || n > d.volumeBytes {
		return place{}, false
	}
	if len(d.index) >= d.indexMax && len(d.volumes) > 0 {
		d.volumes[len(d.volumes)-1].full = true
	}
	if !d.hasRoomLocked(n) {
		if !d.rollLocked() || !d.hasRoomLocked(n) {
			return place{}, false
		}
	}
	s := d.volumes[len(d.volumes)-1]
	p := place{s, uint32(s.size)}
	s.size += n
	return p, true
}

// volumeEntriesMax returns how many entries a volume may have. This bound keeps one volume of tiny
// entries from filling the whole index.
func (d *disk) volumeEntriesMax() int { return max(1, d.indexMax/volumesMin) }

func (d *disk) hasRoomLocked(n int64) bool {
	if len(d.volumes) == 0 {
		return false
	}
	s := d.volumes[len(d.volumes)-1]
	return !s.full && s.size+n <= d.volumeBytes && d.bytesLocked()+n <= d.bytesMax &&
		len(s.hashes) < d.volumeEntriesMax()
}

// rollLocked drops old volumes to make room for a new volume, and creates the new volume. It returns
// false if it can't create the file. It unlocks d.mu while it works on files.
func (d *disk) rollLocked() bool {
	dropped := d.evictLocked(d.bytesMax-d.volumeBytes, d.indexMax-d.volumeEntriesMax())
	s := &volume{id: d.nextID, path: d.path(d.nextID)}
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
	d.volumes = append(d.volumes, s)
	return true
}

// evictLocked drops the oldest volumes until at most bytesMax bytes and entriesMax entries remain. It
// returns the dropped volumes; the caller must remove their files.
func (d *disk) evictLocked(bytesMax int64, entriesMax int) []*volume {
	var dropped []*volume
	for len(d.volumes) > 0 && (d.bytesLocked() > bytesMax || len(d.index) > entriesMax) {
		s := d.volumes[0]
		d.dropLocked(s)
		d.evicted++
		dropped = append(dropped, s)
	}
	return dropped
}

// dropLocked removes a volume from d.volumes and its entries from d.index. The file remains.
func (d *disk) dropLocked(s *volume) {
	d.volumes = slices.DeleteFunc(d.volumes, func(o *volume) bool { return o == s })
	for _, h := range s.hashes {
		if d.index[h].vol == s {
			delete(d.index, h)
		}
	}
}

func (d *disk) bytesLocked() int64 {
	var n int64
	for _, s := range d.volumes {
		n += s.size
	}
	return n
}

func (d *disk) path(id uint64) string {
	return filepath.Join(d.dir, fmt.Sprintf("%020d%s", id, volumeSuffix))
}

// remove removes the file of a volume that was dropped.
func (d *disk) remove(s *volume) {
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
	s.DiskBytes, s.DiskEntries, s.DiskVolumes = d.bytesLocked(), len(d.index), len(d.volumes)
	s.DiskCorrupt, s.DiskErrors, s.DiskEvicted = d.corrupt, d.failed, d.evicted
}
