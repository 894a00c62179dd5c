package record

import "encoding/binary"

// Murmur2 is the hash that Kafka's clients choose partitions by: MurmurHash2 of
// 32 bits with Kafka's seed, as org.apache.kafka.common.utils.Utils.murmur2.
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

// PartitionForKey returns the partition, of n > 0, that Kafka's default
// partitioner chooses for records with this key. Records without a key (nil,
// not empty) have no such partition.
func PartitionForKey(key []byte, n int32) int32 {
	return (Murmur2(key) & 0x7fffffff) % n
}
