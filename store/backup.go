package store

import "context"

// Size is the number of files in a backup and the sum of their bytes.
type Size struct {
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
}

// Backupper is a store that can back up its data: one that keeps its data in a local directory. Backup copies the store
// into the new directory dir, while other calls go on. The copy shows the store as of one moment, and has every write
// that was acknowledged before the call. Backup calls progress, unless nil, now and then with the size copied until
// then; progress must not block. Backup fails with InvalidArgument if dir can't be created, and with Conflict while
// another backup is under way. It fails with Unavailable if the store can't be read or dir can't be written.
type Backupper interface {
	Backup(ctx context.Context, dir string, progress func(Size)) (Size, error)
}
