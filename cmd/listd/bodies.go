package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon/secrecy"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/objects/fileblobs"
	"github.com/evenkeel/evenkeel/objects/s3blobs"
	"github.com/evenkeel/evenkeel/store"
)

// bodies are the blobs with the bodies of objects.
type bodies interface {
	objects.Blobs
	io.Closer
}

// bodiesPlace is where --bodies are: in a directory, in a bucket, or nowhere.
type bodiesPlace struct {
	dir    string
	bucket *s3blobs.Place
}

func (s *serveCmd) bodiesPlace() (bodiesPlace, error) {
	switch {
	case s.Bodies == "" && len(s.Cassandra) > 0:
		return bodiesPlace{}, nil
	case s.Bodies == "":
		return bodiesPlace{dir: filepath.Join(s.Data, "bodies")}, nil
	case strings.HasPrefix(s.Bodies, "s3:"):
		p, err := s3blobs.Parse(s.Bodies)
		return bodiesPlace{bucket: &p}, store.Wrap("--bodies", err)
	}
	dir, err := fileblobs.Directory(s.Bodies)
	return bodiesPlace{dir: dir}, store.Wrap("--bodies", err)
}

// bodiesCheckTime bounds the look for a bucket of bodies at the start.
const bodiesCheckTime = 15 * time.Second

func (s *serveCmd) openBodies(ctx context.Context, log *slog.Logger) (bodies, error) {
	at, err := s.bodiesPlace()
	switch {
	case err != nil:
		return nil, err
	case at.bucket != nil:
		b, err := s3blobs.Open(*at.bucket)
		if err != nil {
			return nil, store.Wrap("--bodies", err)
		}
		ctx, cancel := context.WithTimeout(ctx, bodiesCheckTime)
		defer cancel()
		err = b.Check(ctx)
		if errors.Is(err, store.InvalidArgument) {
			return nil, store.Wrap("--bodies", err)
		}
		if err != nil { // everything else works without it
			log.Warn("the bucket of --bodies can't be reached: objects above 4 KiB are answered 503 until it can", "error", err)
		}
		return b, nil
	case at.dir == "":
		return noBodies{}, nil
	}
	secrecy.WarnOfDirectory(log, "--bodies", at.dir)
	b, err := fileblobs.Open(at.dir)
	return b, store.Wrap("--bodies", err)
}

// noBodies keeps none: objects are at most as long as rows may be.
type noBodies struct{}

func (noBodies) Create(context.Context, string, io.Reader, int64) error {
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
