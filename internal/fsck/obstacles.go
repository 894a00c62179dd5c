package fsck

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
)

// remedy tells the user what to do about an [Obstacle] at the path of an object.
const remedy = "move it away, and put the object back if there was one"

// Obstacle is a file or directory of the wrong kind in a directory store, such as a directory at
// the path of an object.
type Obstacle struct {
	// Key is the key of the object, or the name of the directory.
	Key string
	// Detail names the path, and says what is wrong and what to do.
	Detail string
}

// Obstacles returns the obstacles in a store, sorted by key. Only a directory store can have obstacles.
func Obstacles(ctx context.Context, store objstore.Store) ([]Obstacle, error) {
	walker, ok := store.(objstore.Walker)
	if !ok {
		return nil, nil
	}
	modes := map[string]fs.FileMode{}
	if err := walker.Walk(ctx, func(path string, mode fs.FileMode) {
		if isObject(path) && !mode.IsRegular() || isPrefix(path) && !mode.IsDir() {
			modes[path] = mode
		}
	}); err != nil {
		return nil, err
	}
	obstacles := make([]Obstacle, 0, len(modes))
	for key, mode := range modes {
		must := "a regular file: " + remedy
		if isPrefix(key) {
			must = "a directory: move it away; if a directory of the store was there before, restore that directory"
		}
		obstacles = append(obstacles, Obstacle{key, fmt.Sprintf("%s is %s, and must be %s", walker.Path(key), objstore.KindOf(mode), must)})
	}
	slices.SortFunc(obstacles, func(a, b Obstacle) int { return strings.Compare(a.Key, b.Key) })
	return obstacles, nil
}

// isObject reports whether a key has the form of the keys of seb.json, commits, checkpoints or data objects.
func isObject(key string) bool {
	if s, ok := format.ParseSeqKey(format.LogPrefix, key); ok {
		return s > 0
	}
	if s, ok := format.ParseSeqKey(format.CheckpointPrefix, key); ok {
		return s > 0
	}
	_, ok := format.ParseDataKey(key)
	return ok || key == format.ClusterKey
}

// isPrefix reports whether a name must be the name of a directory: one that holds objects, or one that the
// store itself needs, such as .tmp.
func isPrefix(name string) bool {
	return strings.HasPrefix(name, ".") || slices.Contains([]string{format.LogPrefix, format.DataPrefix, format.CheckpointPrefix, format.ProbePrefix}, name+"/")
}
