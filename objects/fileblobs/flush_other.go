//go:build !linux

package fileblobs

import "os"

// beginFlush does nothing here, because only Linux has a call to begin moving a part of a file to the disk. The sync at
// the end moves the whole file.
func beginFlush(*os.File, int64, int64) {}
