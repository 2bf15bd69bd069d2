package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon/bodies"
	"github.com/evenkeel/evenkeel/internal/assembly"
	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/store"
)

// bodiesPlace returns the directory, or the bucket of another S3 store, in which this server keeps object bodies. The
// result none is true if this server keeps no bodies, which is the default with Cassandra.
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

// openBodies opens the directory or bucket of object bodies, and marks it: a small object named _owner says to which
// store of rows the bodies belong. A directory with the mark of another store of rows is an error.
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
	err = s.claim(ctx, db, blobs, s.BodiesNew)
	if errors.Is(err, care.ErrOthersBodies) || errors.Is(err, errNoMark) {
		return nil, errors.Join(err, blobs.Close())
	}
	if err != nil {
		log.Warn("it is not known whether the place of --bodies is this store's: nothing is cleaned until it is", "error", err)
	}
	return blobs, nil
}

// claimTime is the time limit, while the server starts, for opening the directory or bucket of object bodies and
// marking it as this store's.
const claimTime = 15 * time.Second

// errNoMark is the error for a directory or bucket of object bodies without the mark _owner, which says to which store
// the bodies belong. Perhaps the right file system is not mounted.
var errNoMark = errors.New("the place of bodies has no mark _owner")

// claim marks the directory or bucket of object bodies as belonging to this server's store of rows, and records in the
// store that the mark exists. If the directory has no mark yet, claim first checks that it is not the wrong one. The
// parameter fresh, from the flag --bodies-new, leaves out this check: the operator says that the directory is a new
// one.
//
// The default directory of bodies, inside the data directory, is not recorded in the store. So a backup of a store
// without objects can be restored without a directory of bodies.
func (s *serveCmd) claim(ctx context.Context, db *assembly.DB, blobs objects.Blobs, fresh bool) error {
	id, err := mapclient.Identify(ctx, db.Store)
	if err == nil && !fresh {
		err = mayBeTaken(ctx, db, blobs)
	}
	if err == nil {
		err = care.Claim(ctx, blobs, id.String())
	}
	if err == nil && s.Bodies != "" {
		err = bodies.Note(ctx, db.Store)
	}
	return store.Wrap("--bodies", err)
}

// mayBeTaken checks that the place of object bodies, a directory or bucket, is not the wrong one. A mark in it says to
// which store the bodies belong. The result is
//   - nil, if the place has a mark, or may be a new place;
//   - errNoMark, if the place has no mark, but the store has marked another place or seems to have bodies elsewhere.
func mayBeTaken(ctx context.Context, db *assembly.DB, blobs objects.Blobs) error {
	owner, err := care.Owner(ctx, blobs)
	if err != nil || owner != "" {
		return err
	}
	claimed, err := bodies.Claimed(ctx, db.Store)
	if err == nil && claimed {
		return store.Errorf(store.InvalidArgument, "%w, although this store has marked its place: mount it, correct the "+
			"place, or bring the mark back with the bodies, and start again; if this shall be the place from now on, with what "+
			"is in it, start with --bodies-new", errNoMark)
	}
	if err == nil {
		err = seenBefore(ctx, db.Client, blobs)
	}
	if err != nil && !errors.Is(err, errNoMark) {
		err = fmt.Errorf("%w, and it is not known whether it may be a new one; start again later: %w", errNoMark, err)
	}
	return err
}

// seenBefore decides whether this store may use a directory or bucket without a mark for object bodies, if the store's
// rows do not record a mark either. It returns
//   - nil if the directory has a body: an older listd, which made no marks, has used it;
//   - nil if the store has no bucket of objects: the directory may be a new one;
//   - errNoMark otherwise: the directory is empty although the store has buckets of objects. Perhaps its file system is
//     not mounted.
func seenBefore(ctx context.Context, c *listing.Client, blobs objects.Blobs) error {
	// The rows record no mark if no server had the flag --bodies, or if the last server was an older version.
	seen := errors.New("a body")
	err := blobs.List(ctx, "", "", func(string, int64) error { return seen })
	if errors.Is(err, seen) {
		return nil
	}
	if err != nil {
		return err
	}
	c = c.Everywhere() // also sees a bucket that another data centre has just made
	for info, err := range c.Buckets(ctx, "", "") {
		var settings []byte
		if err == nil {
			settings, err = c.Bucket(info.Name).Settings(ctx)
		}
		if err != nil && !errors.Is(err, listing.ErrNoSuchBucket) {
			return err
		}
		if len(settings) > 0 {
			return store.Errorf(store.InvalidArgument, "%w, and is empty, although this store has buckets of objects: mount it, "+
				"or correct the place, and start again; if the bodies are lost, or there never were any above 4 KiB, --bodies-new "+
				"takes this place for a new one", errNoMark)
		}
	}
	return nil
}

// noBodies is the store of object bodies in a server without --bodies, which keeps no bodies. The objects of the server
// can only be as long as the value of a row may be.
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
