package record

import "encoding/binary"

// Murmur2 is the hash by which Kafka's clients choose partitions: 32-bit MurmurHash2 with
// Kafka's seed, the same as org.apache.kafka.common.utils.Utils.murmur2.
func Murmur2(b []byte) int32 {
	const (
		seed = 0x9747b28c
		m    = 0x5bd1e995
		r    = 24
	)
	h := uint32(seed) ^ uint32(len(b))
	for ; len(b) >= 4; b = b[4:] {
		k := binary.LittleEndian.Uint32(b) * m
		k ^= k >> r
		h = h*m ^ k*m
	}
	switch len(b) {
	case 3:
		h ^= uint32(b[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(b[1]) << 8
		fallthrough
	case 1:
		h = (h ^ uint32(b[0])) * m
	}
	h ^= h >> 13
	h *= m
	return int32(h ^ h>>15)
}

// PartitionForKey returns the partition, of n partitions, that Kafka's default partitioner chooses for
// records with this key. n must be positive. Callers choose the partition of a record without a key in
// another way.
func PartitionForKey(key []byte, n int32) int32 {
	return (Murmur2(key) & 0x7fffffff) % n
}
