//go:build !linux

package fileblobs

import "os"

// beginFlush does nothing on this operating system, because only Linux has a system call to begin writing a range of a
// file to the disk. The sync after the last byte writes the whole file.
func beginFlush(*os.File, int64, int64) {}
