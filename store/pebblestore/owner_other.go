//go:build !unix

package pebblestore

import "github.com/cockroachdb/pebble/v2/vfs"

func owned(under vfs.FS) vfs.FS { return under }
