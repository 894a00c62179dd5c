package format

// Bounds of objects in bytes. Readers refuse larger ones before they read
// them: a bucket may hold anything under a key of the log.
const (
	// ClusterBytesMax is more than seb.json can have.
	ClusterBytesMax = 64 << 10
	// CheckpointBytesMax bounds a checkpoint. None that is larger is written.
	CheckpointBytesMax = 2 << 30
	// ObjectBytesMax bounds a commit and a data object: batches are below 2 GiB.
	ObjectBytesMax = 2<<30 + HeadBytesMax
	// HeadBytesMax bounds the head of an object, prologue included.
	HeadBytesMax = 256 << 20
)
