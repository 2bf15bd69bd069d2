package store

import "context"

// Size is how much a backup holds.
type Size struct {
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
}

// Backupper is the optional power of a store that lies in a directory of the machine.
// Backup copies it, as it is at one moment, into a new directory, while calls go on:
// everything that was acknowledged before the call began is in it. progress, unless nil,
// is told now and then how much there is so far, and must not block. It fails with
// InvalidArgument if there can be no such directory, with Conflict while another backup
// is under way, with Unavailable where the store can't be read or dir not be written.
type Backupper interface {
	Backup(ctx context.Context, dir string, progress func(Size)) (Size, error)
}
