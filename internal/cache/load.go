package cache

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// load finds the volumes that an earlier process left, oldest first, and indexes their entries.
// It removes a volume that does not begin with a valid entry of this cluster and this version.
// It needs only the headers of entries. But if entries are small, it has to read most of a file to
// find the headers.
func (d *disk) load() error {
	names, err := os.ReadDir(d.dir) // sorted by name, so by age
	if err != nil {
		return fmt.Errorf("list cache directory: %w", err)
	}
	for _, n := range names {
		digits, ok := strings.CutSuffix(n.Name(), volumeSuffix)
		id, err := strconv.ParseUint(digits, 10, 64)
		if !ok || err != nil || !n.Type().IsRegular() || filepath.Base(d.path(id)) != n.Name() {
			continue
		}
		d.nextID = max(d.nextID, id+1)
		d.loadVolume(&volume{id: id, path: d.path(id)})
	}
	d.mu.Lock()
	dropped := d.evictLocked(d.bytesMax, d.indexMax)
	d.mu.Unlock()
	for _, s := range dropped {
		d.remove(s)
	}
	return nil
}

// loadVolume indexes one file, or removes it.
func (d *disk) loadVolume(s *volume) {
	f, err := os.Open(s.path)
	if err != nil {
		d.callFailed("open", err)
		return
	}
	defer func() { _ = f.Close() }() // an error does not matter: the file was only read
	info, err := f.Stat()
	if err != nil {
		d.callFailed("stat", err)
		return
	}
	s.size = info.Size()
	end, err := scanVolume(f, s.size, d.cluster, func(r Range, at int64) bool {
		if at > offsetMax || len(s.hashes) >= d.indexMax {
			return false
		}
		h := d.hash(r)
		d.index[h] = place{s, uint32(at)}
		s.hashes = append(s.hashes, h)
		return true
	})
	if err != nil {
		d.foundCorrupt(s.path, err)
	}
	if end == 0 {
		d.remove(s)
		return
	}
	if end < s.size {
		// Cut off the bytes after the last whole entry. If new entries followed these bytes, a later
		// load would not find them.
		if err := os.Truncate(s.path, end); err != nil {
			d.callFailed("truncate", err)
			s.full = true
		} else {
			s.size = end
		}
	}
	d.volumes = append(d.volumes, s)
}
