package format

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"time"
)

// Cluster is the content of seb.json: the constants of a bucket. They are set once and never
// change.
type Cluster struct {
	ID ClusterID `json:"cluster_id"`
	// Format is the version of the objects' format.
	Format int `json:"format"`
	// DeleteDelay (D) is how long an object stays in the bucket, at least, after the log stopped
	// needing it.
	DeleteDelay Duration `json:"delete_delay"`
	// Margin allows for differences between the clocks of the store's servers.
	Margin  Duration  `json:"margin"`
	Created time.Time `json:"created"`
	// Checksum is the CRC-32C, in hex, of the file without this field. The first versions of Seb
	// wrote files without a checksum.
	Checksum string `json:"crc32c,omitempty"`
}

// Duration is a duration that is encoded as text in Go's form, such as 24h0m0s.
type Duration time.Duration

// MarshalText writes the duration in Go's form.
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
		return fmt.Errorf("a cluster id must have %d hex digits, not %d", hex.EncodedLen(len(c)), len(b))
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

// DecodeCluster reads seb.json. It returns an error if a single byte differs from what Seb writes, so
// that two brokers never use different values of the cluster id or the delete delay.
func DecodeCluster(b []byte) (Cluster, error) {
	var c Cluster
	if err := json.Unmarshal(b, &c); err != nil {
		return c, fmt.Errorf("%s: %w: %w", ClusterKey, ErrCorrupt, err)
	}
	switch {
	case c.Format != Version:
		return c, fmt.Errorf("%s: %w: its format is %d, this seb reads only %d", ClusterKey, ErrVersion, c.Format, Version)
	case c.ID == ClusterID{}:
		return c, fmt.Errorf("%s: %w: its cluster id is missing or zero", ClusterKey, ErrCorrupt)
	}
	if err := CheckDelays(time.Duration(c.DeleteDelay), time.Duration(c.Margin)); err != nil {
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

// CheckDelays returns an error unless deleteDelay is above 0 and at least four times margin, and
// margin is not negative. It divides deleteDelay by four, since four times margin may overflow.
func CheckDelays(deleteDelay, margin time.Duration) error {
	if margin < 0 || deleteDelay <= 0 || deleteDelay/4 < margin {
		return fmt.Errorf("the delete delay is %v and the margin is %v: the delete delay must be above 0 and at least four times the margin, and the margin must not be negative", deleteDelay, margin)
	}
	return nil
}
