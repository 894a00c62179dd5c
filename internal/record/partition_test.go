package record

import "testing"

// The first six are the table of Kafka's UtilsTest.testMurmur2; all were
// computed by Utils.murmur2 and BuiltInPartitioner.partitionForKey of the Java
// client 3.9.1.
func TestPartitionsAsKafkaDoes(t *testing.T) {
	for _, tc := range []struct {
		key       string
		hash      int32
		partition int32 // of 12; -1 where only the hash is known
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
	} {
		if got := Murmur2([]byte(tc.key)); got != tc.hash {
			t.Errorf("Murmur2(%q) = %d, want %d", tc.key, got, tc.hash)
		}
		if got := PartitionForKey([]byte(tc.key), 12); tc.partition >= 0 && got != tc.partition {
			t.Errorf("PartitionForKey(%q, 12) = %d, want %d", tc.key, got, tc.partition)
		}
	}
}
