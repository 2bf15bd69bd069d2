package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon/bodies"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/partmap/mapclient"
	"github.com/evenkeel/evenkeel/rebalance/assembly"
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

// openBodies opens the place of bodies, and claims it for the store of rows.
func (s *serveCmd) openBodies(ctx context.Context, db *assembly.DB, log *slog.Logger) (bodies.Store, error) {
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
	err = claim(ctx, db, blobs, s.BodiesNew)
	if errors.Is(err, objects.ErrOthersBodies) || errors.Is(err, errNoMark) {
		return nil, errors.Join(err, blobs.Close())
	}
	if err != nil {
		log.Warn("it is not known whether the place of --bodies is this store's: nothing is cleaned until it is", "error", err)
	}
	return blobs, nil
}

// claimTime bounds what the start asks the place of bodies.
const claimTime = 15 * time.Second

// errNoMark: a place of bodies may be one that is not there at present.
var errNoMark = errors.New(
	"the place of bodies is empty, without the mark _owner, although this store has buckets of objects")

// claim makes a place of bodies that of a store of rows. fresh: it may be a new one, although the store is not.
func claim(ctx context.Context, db *assembly.DB, blobs objects.Blobs, fresh bool) error {
	id, err := mapclient.Identify(ctx, db.Store)
	if err == nil && !fresh {
		err = seenBefore(ctx, db.Client, blobs)
	}
	if err == nil {
		err = objects.Claim(ctx, blobs, id.String())
	}
	return store.Wrap("--bodies", err)
}

// seenBefore fails where a store has buckets of objects, and the place that should have their bodies shows neither a
// mark nor a body: a file system that is not mounted leaves an empty directory. A store without such buckets may get a
// new place. A place with bodies and without a mark is that of an older listd.
func seenBefore(ctx context.Context, c *listing.Client, blobs objects.Blobs) error {
	owner, err := objects.Owner(ctx, blobs)
	if err != nil || owner != "" {
		return err
	}
	seen := errors.New("a body")
	err = blobs.List(ctx, "", "", func(string, int64) error { return seen })
	if errors.Is(err, seen) {
		return nil
	}
	if err != nil {
		return err
	}
	c = c.Everywhere() // another data centre may have made a bucket just now
	for info, err := range c.Buckets(ctx, "", "") {
		var settings []byte
		if err == nil {
			settings, err = c.Bucket(info.Name).Settings(ctx)
		}
		if err != nil && !errors.Is(err, listing.ErrNoSuchBucket) {
			return err
		}
		if len(settings) > 0 {
			return store.Errorf(store.InvalidArgument, "%w: mount it, or correct the place, and start again; if the bodies are "+
				"lost, or there never were any above 4 KiB, --bodies-new takes this place for a new one", errNoMark)
		}
	}
	return nil
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
