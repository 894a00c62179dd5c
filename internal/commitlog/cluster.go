package commitlog

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"time"

	"github.com/simple-event-broker/seb/objstore"
)

// Cluster is what seb.json says: the constants of a bucket. They are created
// once and never change.
type Cluster struct {
	ID ClusterID `json:"cluster_id"`
	// Format is the version of the objects' format.
	Format int `json:"format"`
	// DeleteDelay (D) is how long an object stays after the log stopped needing it.
	DeleteDelay Duration `json:"delete_delay"`
	// Margin covers disagreement among the store's clocks.
	Margin  Duration  `json:"margin"`
	Created time.Time `json:"created"`
	// Checksum is the CRC-32C of the file without it, in hex; files written by
	// the first versions of Seb have none.
	Checksum string `json:"crc32c,omitempty"`
}

// Duration is written as Go writes durations, such as 24h0m0s.
type Duration time.Duration

// MarshalText writes the duration as Go does.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads what [time.ParseDuration] reads.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = Duration(v)
	return err
}

// MarshalText writes 32 hex digits.
func (c ClusterID) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads 32 hex digits.
func (c *ClusterID) UnmarshalText(b []byte) error {
	if len(b) != hex.EncodedLen(len(c)) {
		return fmt.Errorf("a cluster id has %d hex digits, not %d", hex.EncodedLen(len(c)), len(b))
	}
	_, err := hex.Decode(c[:], b)
	return err
}

// EncodeCluster returns seb.json.
func EncodeCluster(c Cluster) ([]byte, error) {
	c.Checksum = ""
	bare, err := encodeAsIs(c)
	if err != nil {
		return nil, err
	}
	c.Checksum = fmt.Sprintf("%08x", crc32.Checksum(bare, castagnoli))
	return encodeAsIs(c)
}

func encodeAsIs(c Cluster) ([]byte, error) {
	b, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", ClusterKey, err)
	}
	return append(b, '\n'), nil
}

// DecodeCluster reads seb.json. It takes nothing that differs in a single byte
// from what Seb has written: two brokers with different ideas of D or of whose
// log it is would be worse than one that does not start.
func DecodeCluster(b []byte) (Cluster, error) {
	var c Cluster
	if err := json.Unmarshal(b, &c); err != nil {
		return c, fmt.Errorf("%s: %w: %w", ClusterKey, ErrCorrupt, err)
	}
	switch {
	case c.Format != formatVersion:
		return c, fmt.Errorf("%s: %w: format is %d, this seb reads %d", ClusterKey, ErrVersion, c.Format, formatVersion)
	case c.ID == ClusterID{}:
		return c, fmt.Errorf("%s: %w: it names no cluster", ClusterKey, ErrCorrupt)
	}
	if err := checkDelays(time.Duration(c.DeleteDelay), time.Duration(c.Margin)); err != nil {
		return c, fmt.Errorf("%s: %w: %w", ClusterKey, ErrCorrupt, err)
	}
	encode := EncodeCluster
	if c.Checksum == "" {
		encode = encodeAsIs
	}
	if want, err := encode(c); err != nil || !bytes.Equal(b, want) {
		return c, fmt.Errorf("%s: %w: it is not what seb writes, or its checksum is wrong", ClusterKey, ErrCorrupt)
	}
	return c, nil
}

// checkDelays divides, since four times a margin may be more than a Duration holds.
func checkDelays(deleteDelay, margin time.Duration) error {
	if margin < 0 || deleteDelay <= 0 || deleteDelay/4 < margin {
		return fmt.Errorf("delete delay %v is less than four times the margin %v, or one of them is negative", deleteDelay, margin)
	}
	return nil
}

// OpenCluster reads a bucket's constants, or sets them where the bucket is
// empty; deleteDelay and margin are used only then. A bucket that holds anything
// else but has no seb.json is refused.
func OpenCluster(ctx context.Context, store objstore.Store, deleteDelay, margin time.Duration, now time.Time) (Cluster, error) {
	if err := checkDelays(deleteDelay, margin); err != nil {
		return Cluster{}, err
	}
	var (
		last  error
		other string // a key that was there when seb.json was not
	)
	for try := range attemptsMax {
		if try > 0 {
			if err := sleep(ctx, time.Duration(try)*backoffMin); err != nil {
				return Cluster{}, err
			}
		}
		c, err := readCluster(ctx, store)
		switch {
		case err == nil:
			return c, nil
		case !errors.Is(err, objstore.ErrNotFound):
			// What came back bent counts as damage only if it always did.
			if !isDamage(err) || try == 0 || isDamage(last) {
				last = err
			}
			continue
		case other != "":
			return Cluster{}, fmt.Errorf("%w: the bucket has no %s but holds %s; use an empty bucket or prefix, or restore %s",
				ErrForeign, ClusterKey, other, ClusterKey)
		}
		last = err
		page, err := listOnce(ctx, store, "", "")
		if err != nil {
			last = fmt.Errorf("list the bucket: %w", err)
			continue
		}
		// What a probe left behind, here or of a broker that starts, is nobody's.
		taken := slices.DeleteFunc(page.Keys, func(k string) bool { return strings.HasPrefix(k, ProbePrefix) })
		if len(taken) > 0 {
			// Another broker may have created seb.json since, and other keys
			// after it, so it is looked for once more.
			if taken[0] != ClusterKey {
				other = taken[0]
			}
			continue
		}
		// Whatever the outcome: what stands there then is read and taken.
		if err := createCluster(ctx, store, deleteDelay, margin, now); err != nil && !errors.Is(err, objstore.ErrExists) {
			last = err
		}
	}
	return Cluster{}, fmt.Errorf("open %s, %d attempts: %w", ClusterKey, attemptsMax, last)
}

func createCluster(ctx context.Context, store objstore.Store, deleteDelay, margin time.Duration, now time.Time) error {
	c := Cluster{Format: formatVersion, DeleteDelay: Duration(deleteDelay), Margin: Duration(margin), Created: now.UTC().Truncate(time.Second)}
	rand.Read(c.ID[:])
	body, err := EncodeCluster(c)
	if err != nil {
		return err
	}
	ctx, cancel := timeout(ctx, 0)
	defer cancel()
	_, err = store.Create(ctx, ClusterKey, body)
	return err
}

func readCluster(ctx context.Context, store objstore.Store) (Cluster, error) {
	ctx, cancel := timeout(ctx, 0)
	defer cancel()
	o, err := objstore.GetWhole(ctx, store, ClusterKey, ClusterBytesMax)
	if errors.Is(err, objstore.ErrTooLarge) {
		err = fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if err != nil {
		return Cluster{}, fmt.Errorf("get %s: %w", ClusterKey, err)
	}
	return DecodeCluster(o.Body)
}
