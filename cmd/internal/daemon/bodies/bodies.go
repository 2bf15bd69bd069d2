// Package bodies opens the store of object bodies that the flag --bodies names: a directory, or a bucket of another S3
// store.
package bodies

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon/secrecy"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/objects/fileblobs"
	"github.com/evenkeel/evenkeel/objects/s3blobs"
	"github.com/evenkeel/evenkeel/store"
)

// Store is an open store of object bodies: a directory of files, or a bucket of another S3 store. The caller closes the
// Store.
type Store interface {
	objects.Blobs
	io.Closer
}

// Place is a parsed value of the flag --bodies, which says where object bodies are kept. A Place is a bucket of another
// S3 store if Bucket is set. If Bucket is nil, it is the directory Dir.
type Place struct {
	Dir    string
	Bucket *s3blobs.Place
}

// Parse returns the directory or bucket that text names, which is a value of the flag --bodies such as
// file:///var/lib/bodies. An error does not repeat text, as text may contain a secret key.
func Parse(text string) (Place, error) {
	if strings.HasPrefix(text, "s3:") {
		p, err := s3blobs.Parse(text)
		return Place{Bucket: &p}, store.Wrap("--bodies", err)
	}
	dir, ok := directory(text)
	if !ok {
		return Place{}, errors.New("--bodies is not file:///DIRECTORY or s3://BUCKET?endpoint=URL&region=NAME")
	}
	return Place{Dir: dir}, nil
}

// directory returns the path of the directory in a URL like file:///srv/bodies. The result ok is false if text is not a
// URL of this form.
func directory(text string) (dir string, ok bool) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "file" || u.Host != "" || !filepath.IsAbs(u.Path) || u.RawQuery+u.Fragment != "" {
		return "", false
	}
	return filepath.Clean(u.Path), true
}

// checkTime is the time limit for the check whether the bucket with the object bodies can be reached.
const checkTime = 15 * time.Second

// Look opens the directory or bucket with the object bodies, for a command that only reads. A directory must exist
// already, and Look creates nothing in it. A bucket must exist, too. If the bucket exists but cannot be reached, Look
// logs a warning and succeeds.
func (p Place) Look(ctx context.Context, log *slog.Logger) (Store, error) {
	if p.Bucket != nil {
		return p.Open(ctx, log)
	}
	b, err := fileblobs.Look(p.Dir)
	return b, store.Wrap("--bodies", err)
}

// Open opens the directory or bucket with the object bodies, for reading and writing. A bucket that does not exist, or
// that the access key may not use, is an error. If the bucket only cannot be reached, Open logs a warning and succeeds,
// as the bucket may be reachable later.
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
