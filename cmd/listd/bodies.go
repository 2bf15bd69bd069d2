package main

import (
	"context"
	"io"
	"log/slog"
	"path/filepath"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon/secrecy"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/objects/fileblobs"
	"github.com/evenkeel/evenkeel/store"
)

// bodies are the blobs with the bodies of objects.
type bodies interface {
	objects.Blobs
	io.Closer
}

// bodiesDir returns the directory of --bodies; "": there is none.
func (s *serveCmd) bodiesDir() (string, error) {
	if s.Bodies == "" {
		if len(s.Cassandra) > 0 {
			return "", nil
		}
		return filepath.Join(s.Data, "bodies"), nil
	}
	dir, err := fileblobs.Directory(s.Bodies)
	return dir, store.Wrap("--bodies", err)
}

func (s *serveCmd) openBodies(log *slog.Logger) (bodies, error) {
	dir, err := s.bodiesDir()
	if err != nil {
		return nil, err
	}
	if dir == "" {
		return noBodies{}, nil
	}
	secrecy.WarnOfDirectory(log, "--bodies", dir)
	b, err := fileblobs.Open(dir)
	return b, store.Wrap("--bodies", err)
}

// noBodies keeps none: objects are at most as long as rows may be.
type noBodies struct{}

func (noBodies) Create(context.Context, string, io.Reader) error {
	return store.Errorf(store.InvalidArgument, "this server keeps no body above 4 KiB: it was started without --bodies")
}

func (noBodies) Open(context.Context, string, int64, int64) (io.ReadCloser, int64, error) {
	return nil, 0, store.Errorf(store.Unavailable, "the bodies of objects are elsewhere: this server was started without --bodies")
}

func (noBodies) Delete(context.Context, string) error {
	return store.Errorf(store.Unavailable, "the bodies of objects are elsewhere: this server was started without --bodies")
}

func (noBodies) List(context.Context, string, string, func(string, int64) error) error { return nil }

func (noBodies) Close() error { return nil }
