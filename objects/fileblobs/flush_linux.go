package fileblobs

import (
	"os"

	"golang.org/x/sys/unix"
)

// beginFlush has the kernel begin to move n bytes of a file, from offset on, to the disk. It does not wait until they
// are there. This only saves time later: an error is ignored, since the sync at the end reports it, too.
func beginFlush(f *os.File, offset, n int64) {
	_ = unix.SyncFileRange(int(f.Fd()), offset, n, unix.SYNC_FILE_RANGE_WRITE)
}
