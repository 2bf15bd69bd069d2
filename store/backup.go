package store

import "context"

// Size is the size of a backup of a store: the number of its files and the sum of their bytes.
type Size struct {
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
}

// Backupper is a store that keeps its data in a local directory and can copy it. The method Backup copies the store
// into the new directory dir, while other calls go on. The copy shows the store as of one moment, and has every write
// that was acknowledged before the call. The returned Size is that of the whole copy.
//
// Backup now and then calls progress, unless progress is nil, with the size copied so far. The function progress must
// not block. Backup fails with InvalidArgument if dir can't be created, and with Conflict while another backup is under
// way. Backup fails with Unavailable if the store can't be read or dir can't be written.
type Backupper interface {
	Backup(ctx context.Context, dir string, progress func(Size)) (Size, error)
}
