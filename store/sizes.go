package store

import "time"

// PartitionSize is the measured size of one partition, which the store keeps beside the rows of the partition. A
// process that counts rows and bytes stores the size, and reads the size again after the process has lost its own
// counts.
type PartitionSize struct {
	Partition Partition
	// Encoded is the size in the encoding of the counter, which the store does not read. A nil Encoded means that the
	// store keeps no size. At is the time for which the size holds: of two sizes of a partition the store keeps the
	// newer size.
	Encoded []byte
	At      time.Time
}
