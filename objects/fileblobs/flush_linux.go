package fileblobs

import (
	"os"

	"golang.org/x/sys/unix"
)

// beginFlush begins to write a part of a file to the disk, and waits for nothing. It is a hint: what fails
// here the later sync of the file reports, too.
func beginFlush(f *os.File, offset, n int64) {
	_ = unix.SyncFileRange(int(f.Fd()), offset, n, unix.SYNC_FILE_RANGE_WRITE)
}
