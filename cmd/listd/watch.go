package main

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon/logging"
	"github.com/evenkeel/evenkeel/internal/reload"
	"github.com/evenkeel/evenkeel/s3api"
)

type keysFile struct {
	reload.Files
	set atomic.Pointer[s3api.KeySet]
}

func openKeys(file string) (*keysFile, error) {
	k := &keysFile{}
	k.Files = reload.Files{What: "the access keys", Names: []string{file}, Take: func(contents [][]byte) error {
		set, err := s3api.ParseKeys(contents[0])
		if err == nil {
			k.set.Store(&set)
		}
		return err
	}, Tell: k.logScopes}
	return k, k.Load()
}

// logScopes logs what each access key of the file may do: whether the key may write, and on which keys and buckets. The
// log lines hold no secrets.
func (k *keysFile) logScopes(log *slog.Logger) {
	set := *k.set.Load()
	log = logging.Unlimited(log)
	for _, id := range slices.Sorted(maps.Keys(set)) {
		access := "read-only"
		if set[id].Write {
			access = "read-write"
		}
		if set[id].AnyBytes {
			access += ", any key bytes"
		}
		scope := "everything"
		if !set[id].Everything {
			scope = "only " + strings.Join(set[id].Only, ", ")
		}
		log.Info("access key", "key", id, "access", access, "scope", scope)
	}
}

// Key returns the access key with the given id from the file of access keys, or nil if the file has no such key.
// s3api.Options.Keys calls it to check signatures.
func (k *keysFile) Key(id string) *s3api.Key { return k.set.Load().Key(id) }
