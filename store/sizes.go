package store

import "time"

// A PartitionSize is the measured size of one partition, which the store keeps beside the rows of the partition. A
// process that counts rows and bytes stores the size, and reads it again when it has lost its own counts (see
// counter.Keeper).
type PartitionSize struct {
	Partition Partition
	// Encoded is the size as the counter encodes it, opaque to the store; nil means that no size is kept. At is the
	// time for which the size holds: of two sizes of a partition the store keeps the newer one.
	Encoded []byte
	At      time.Time
}
