package store

import "context"

// OnDisk is implemented by stores that keep their data in a directory of this machine.
type OnDisk interface {
	Writable
	// Disk returns the size of the file system and how full it is. The second result is false if these numbers are not
	// known, or after Close.
	Disk() (DiskUsage, bool)
	// Backup copies the store into the new directory dir, while other calls go on. The copy shows the store as of one
	// moment, and has every write that was acknowledged before the call. The returned Size is that of the whole copy.
	//
	// Backup now and then calls progress, unless progress is nil, with the size copied so far. The function progress
	// must not block. Backup fails with InvalidArgument if dir can't be created, and with Conflict while another backup
	// is under way. Backup fails with Unavailable if the store can't be read or dir can't be written.
	Backup(ctx context.Context, dir string, progress func(Size)) (Size, error)
}

// DiskUsage is the size of the file system on which a store keeps its files, and how full the file system is, in bytes.
type DiskUsage struct {
	Total, Free uint64 // Free is the space that this process may use
	Reserve     uint64 // puts of clients are refused while less is free
	Store       uint64 // the size of the store's files
}

// Size is the size of a backup of a store: the number of its files and the sum of their bytes.
type Size struct {
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
}
