package store

import "context"

// Size is how much a backup holds.
type Size struct {
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
}

// Backupper is implemented by stores in a local directory. Backup copies the store, as of
// one moment, into a new directory, while calls go on. The copy has everything that was
// acknowledged before the call. progress, unless nil, is called now and then with the size
// so far, and must not block. Backup fails with InvalidArgument if dir can't be created,
// with Conflict while another backup is under way, with Unavailable where the store can't
// be read or dir can't be written.
type Backupper interface {
	Backup(ctx context.Context, dir string, progress func(Size)) (Size, error)
}
