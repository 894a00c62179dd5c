package format

// Bounds on the sizes of objects, in bytes. Brokers don't read larger objects: someone else may have
// stored anything under a key that Seb uses.
const (
	// ClusterBytesMax bounds seb.json. Brokers write far fewer bytes.
	ClusterBytesMax = 64 << 10
	// CheckpointBytesMax bounds a checkpoint. Brokers write no larger checkpoint.
	CheckpointBytesMax = 2 << 30
	// ObjectBytesMax bounds a commit or a data object, whose batches take at most 2 GiB.
	ObjectBytesMax = 2<<30 + HeadBytesMax
	// HeadBytesMax bounds the head of an object, including its prologue.
	HeadBytesMax = 256 << 20
)
