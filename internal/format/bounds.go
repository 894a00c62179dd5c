package format

// Bounds on the sizes of objects, in bytes. Readers refuse larger objects before they read them:
// a bucket may hold anything under a key of the log.
const (
	// ClusterBytesMax bounds seb.json, which never gets this large.
	ClusterBytesMax = 64 << 10
	// CheckpointBytesMax bounds a checkpoint. Brokers write no larger checkpoint.
	CheckpointBytesMax = 2 << 30
	// ObjectBytesMax bounds a commit or a data object, whose batches take at most 2 GiB.
	ObjectBytesMax = 2<<30 + HeadBytesMax
	// HeadBytesMax bounds the head of an object, including its prologue.
	HeadBytesMax = 256 << 20
)
