package fileblobs

import (
	"os"

	"golang.org/x/sys/unix"
)

// beginFlush asks the kernel to begin to write n bytes of a file, from offset on, to the disk, and does not wait for
// the end. Then the sync after the last byte takes less time. Errors are ignored, since that sync reports them, too.
func beginFlush(f *os.File, offset, n int64) {
	_ = unix.SyncFileRange(int(f.Fd()), offset, n, unix.SYNC_FILE_RANGE_WRITE)
}
