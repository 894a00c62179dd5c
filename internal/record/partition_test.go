package record

import "testing"

// The first six hashes are from the table of Kafka's UtilsTest.testMurmur2. Those of the empty
// key, "1234" and "kafka" are from librdkafka's unit test. The last four are from Apache Commons
// Codec's MurmurHash2Test, whose default seed is Kafka's. The other hashes and the partitions
// were computed by Utils.murmur2 and BuiltInPartitioner.partitionForKey of the Java client
// 3.9.1. kafka-python 3.0.12 computes the same values for all.
func TestPartitionsAsKafkaDoes(t *testing.T) {
	for _, tc := range []struct {
		key       string
		hash      int32
		partition int32 // of 12 partitions; -1 if only the hash is known
	}{
		{"21", -973932308, 0},
		{"foobar", -790332482, 6},
		{"a-little-bit-long-string", -985981536, -1},
		{"a-little-bit-longer-string", -1486304829, -1},
		{"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971, -1},
		{"abc", 479470107, 3},
		{"", 275646681, 9},
		{"a", -1563381124, 4},
		{"ab", 316155434, 2},
		{"abcd", -1323649548, 8},
		{"order-1", 1221710326, 10},
		{"order-2", -1055499005, 3},
		{"\xff\x80\xfe\x81\xfd\x82\xfc", 1867014551, 11},
		{"cl\u00e9", 1419575574, 6},
		{"1234", -1614185708, 0},
		{"kafka", -798503068, -1},
		{"\x7e", -325578150, 2},
		{"\x37\xa0\xa9", 190928784, 0},
		{"\xeb\x25\x3f\x87", -1672942039, 1},
		{"\xe2\x42\x1c\x2d\xc1\xe4\x3e", -1355431454, 6},
	} {
		if got := Murmur2([]byte(tc.key)); got != tc.hash {
			t.Errorf("Murmur2(%q) = %d, want %d", tc.key, got, tc.hash)
		}
		if got := PartitionForKey([]byte(tc.key), 12); tc.partition >= 0 && got != tc.partition {
			t.Errorf("PartitionForKey(%q, 12) = %d, want %d", tc.key, got, tc.partition)
		}
	}
}
