package main

import (
	"context"
	"io"
	"log/slog"
	"path/filepath"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon/bodies"
	"github.com/evenkeel/evenkeel/store"
)

// bodiesPlace is where the bodies of objects are; none: this server keeps none.
func (s *serveCmd) bodiesPlace() (at bodies.Place, none bool, err error) {
	switch {
	case s.Bodies == "" && len(s.Cassandra) > 0:
		return at, true, nil
	case s.Bodies == "":
		return bodies.Place{Dir: filepath.Join(s.Data, "bodies")}, false, nil
	}
	at, err = bodies.Parse(s.Bodies)
	return at, false, err
}

func (s *serveCmd) openBodies(ctx context.Context, log *slog.Logger) (bodies.Store, error) {
	at, none, err := s.bodiesPlace()
	if err != nil {
		return nil, err
	}
	if none {
		return noBodies{}, nil
	}
	return at.Open(ctx, log)
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
