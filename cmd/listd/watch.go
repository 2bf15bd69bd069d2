package main

import (
	"sync/atomic"

	"github.com/evenkeel/evenkeel/internal/reload"
	"github.com/evenkeel/evenkeel/s3api"
)

// keysFile is a file of access keys.
type keysFile struct {
	reload.Files
	set atomic.Pointer[s3api.KeySet]
}

// openKeys reads a file of access keys.
func openKeys(file string) (*keysFile, error) {
	k := &keysFile{}
	k.Files = reload.Files{What: "the access keys", Names: []string{file}, Take: func(contents [][]byte) error {
		set, err := s3api.ParseKeys(contents[0])
		if err == nil {
			k.set.Store(&set)
		}
		return err
	}}
	return k, k.Load()
}

// Key implements s3api.Keys.
func (k *keysFile) Key(id string) *s3api.Key { return k.set.Load().Key(id) }
