package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon/bodies"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/partmap/mapclient"
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

// openBodies opens the place of bodies, and claims it for a store of rows.
func (s *serveCmd) openBodies(ctx context.Context, rows store.Registers, log *slog.Logger) (bodies.Store, error) {
	at, none, err := s.bodiesPlace()
	if err != nil {
		return nil, err
	}
	if none {
		return noBodies{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, claimTime)
	defer cancel()
	blobs, err := at.Open(ctx, log)
	if err != nil {
		return nil, err
	}
	err = claim(ctx, rows, blobs)
	if errors.Is(err, objects.ErrOthersBodies) {
		return nil, errors.Join(err, blobs.Close())
	}
	if err != nil {
		log.Warn("it is not known whether the place of --bodies is this store's: nothing is cleaned until it is", "error", err)
	}
	return blobs, nil
}

// claimTime bounds what the start asks the place of bodies.
const claimTime = 15 * time.Second

// claim makes a place of bodies that of a store of rows.
func claim(ctx context.Context, rows store.Registers, blobs objects.Blobs) error {
	id, err := mapclient.Identify(ctx, rows)
	if err == nil {
		err = objects.Claim(ctx, blobs, id.String())
	}
	return store.Wrap("--bodies", err)
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
