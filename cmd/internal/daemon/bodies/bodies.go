// Package bodies opens the place that the flag --bodies names, where the bodies of objects are kept.
package bodies

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon/secrecy"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/objects/fileblobs"
	"github.com/evenkeel/evenkeel/objects/s3blobs"
	"github.com/evenkeel/evenkeel/store"
)

// Store is an open place, such as a directory, in which the bodies of objects are kept. The caller closes it.
type Store interface {
	objects.Blobs
	io.Closer
}

// Place says where the bodies of objects are kept: in the Bucket of another S3 store, or if Bucket is nil in the
// directory Dir.
type Place struct {
	Dir    string
	Bucket *s3blobs.Place
}

// Parse returns the place for the bodies of objects that a value of --bodies names. An error does not repeat the value,
// as it may contain a secret.
func Parse(text string) (Place, error) {
	if strings.HasPrefix(text, "s3:") {
		p, err := s3blobs.Parse(text)
		return Place{Bucket: &p}, store.Wrap("--bodies", err)
	}
	dir, ok := fileblobs.Directory(text)
	if !ok {
		return Place{}, errors.New("--bodies is not file:///DIRECTORY or s3://BUCKET?endpoint=URL&region=NAME")
	}
	return Place{Dir: dir}, nil
}

// checkTime is the time limit for the check whether the bucket with the bodies can be reached.
const checkTime = 15 * time.Second

// Look opens the place with the bodies of objects, for reading. A directory must exist already, and nothing is created
// in it. A bucket of another S3 store must exist, too; if it only cannot be reached, Look logs a warning and succeeds.
func (p Place) Look(ctx context.Context, log *slog.Logger) (Store, error) {
	if p.Bucket != nil {
		return p.Open(ctx, log)
	}
	b, err := fileblobs.Look(p.Dir)
	return b, store.Wrap("--bodies", err)
}

// Open opens the place with the bodies of objects. A bucket that does not exist, or that the access key may not use, is
// an error. If the bucket only cannot be reached, Open logs a warning and succeeds, as it may be reached later.
func (p Place) Open(ctx context.Context, log *slog.Logger) (Store, error) {
	if p.Bucket == nil {
		secrecy.WarnOfDirectory(log, "--bodies", p.Dir)
		b, err := fileblobs.Open(p.Dir)
		return b, store.Wrap("--bodies", err)
	}
	b, err := s3blobs.Open(*p.Bucket)
	if err != nil {
		return nil, store.Wrap("--bodies", err)
	}
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	err = b.Check(ctx)
	if errors.Is(err, store.InvalidArgument) {
		return nil, store.Wrap("--bodies", err)
	}
	if err != nil {
		log.Warn("the bucket of --bodies can't be reached: objects above 4 KiB have no body until it can", "error", err)
	}
	return b, nil
}
