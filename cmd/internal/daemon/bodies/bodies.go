// Package bodies opens what the flag --bodies names: where the bodies of objects are.
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

// Store has the bodies.
type Store interface {
	objects.Blobs
	io.Closer
}

// Place is a directory, or a bucket of another S3 store.
type Place struct {
	Dir    string
	Bucket *s3blobs.Place
}

// Parse reads --bodies. Its errors do not repeat the text, which may contain a secret.
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

// checkTime bounds the look for a bucket.
const checkTime = 15 * time.Second

// Look opens the place to read it. A directory must be there, and nothing is made in it; a bucket is opened as by Open.
func (p Place) Look(ctx context.Context, log *slog.Logger) (Store, error) {
	if p.Bucket != nil {
		return p.Open(ctx, log)
	}
	b, err := fileblobs.Look(p.Dir)
	return b, store.Wrap("--bodies", err)
}

// Open opens the place. A bucket that can't be reached is warned of: it may be there later. One that does not
// exist, or not for this access key, is an error.
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
