//go:build unix

package pebblestore

import (
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// owned returns a file system that works like the file system under, except that new files get the owner of their
// directory if the process runs as root. So a server of that owner can read files that a command run by root has
// created.
func owned(under vfs.FS) vfs.FS {
	if os.Geteuid() != 0 {
		return under
	}
	return ownedFS{under}
}

type ownedFS struct{ vfs.FS }

func (o ownedFS) Unwrap() vfs.FS { return o.FS }

// give makes the owner of a directory the owner of a new file in it. It does nothing if the directory belongs to root.
// The parameter name is the path of the file. The function chown changes the owner of the file. Errors are ignored:
// some file systems have no owners, or do not let root give files away.
func give(name string, chown func(uid, gid int) error) {
	info, err := os.Stat(filepath.Dir(name))
	if err != nil {
		return
	}
	if of, ok := info.Sys().(*syscall.Stat_t); ok && of.Uid != 0 {
		_ = chown(int(of.Uid), int(of.Gid))
	}
}

// giveFile makes the owner of a directory the owner of the new file f in it. name is the path of the file. f and err
// are the results of opening the file; both are returned unchanged. If err is not nil, nothing is done.
func giveFile(name string, f vfs.File, err error) (vfs.File, error) {
	// The file's descriptor is used, since another file may have taken the name meanwhile.
	if err == nil && f.Fd() != vfs.InvalidFd {
		give(name, func(uid, gid int) error { return syscall.Fchown(int(f.Fd()), uid, gid) })
	}
	return f, err
}

func (o ownedFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := o.FS.Create(name, c)
	return giveFile(name, f, err)
}

func (o ownedFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := o.FS.OpenReadWrite(name, c, opts...)
	return giveFile(name, f, err)
}

func (o ownedFS) MkdirAll(dir string, perm os.FileMode) error {
	if _, err := os.Stat(dir); err == nil {
		return o.FS.MkdirAll(dir, perm)
	}
	if parent := filepath.Dir(dir); parent != dir {
		if err := o.MkdirAll(parent, perm); err != nil {
			return err
		}
	}
	err := o.FS.MkdirAll(dir, perm)
	if err == nil {
		give(dir, func(uid, gid int) error { return os.Lchown(dir, uid, gid) })
	}
	return err
}

func (o ownedFS) Lock(name string) (io.Closer, error) {
	_, absent := os.Lstat(name)
	l, err := o.FS.Lock(name)
	if err == nil && absent != nil {
		give(name, func(uid, gid int) error { return os.Lchown(name, uid, gid) })
	}
	return l, err
}
