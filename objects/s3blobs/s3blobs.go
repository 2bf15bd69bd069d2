// Package s3blobs keeps the bodies of objects in a bucket of another S3 store.
package s3blobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/evenkeel/evenkeel/store"
)

// Store is a bucket with blobs. It is safe for concurrent use, also by several processes. Errors are
// Unavailable where the bucket can't be used, whatever the reason: the blob may be there.
type Store struct {
	c         minio.Core
	bucket    string
	stall     time.Duration
	transport *http.Transport
	// unsized bounds the memory for bodies of unknown length.
	unsized chan struct{}
}

const (
	// stall is how long the server may take before it takes or sends the next bytes, and answerTime how long
	// before it answers once it has a body.
	stall      = 10 * time.Second
	answerTime = time.Minute
	// attempts is how often a request is sent at most that has no body, or one in memory.
	attempts = 2
	// partBytes of memory are taken by each of at most unsizedAtOnce bodies of unknown length. It is the least that S3
	// allows, and enough for the longest body in its 10,000 parts.
	partBytes     = 5 << 20
	unsizedAtOnce = 8
)

// Place is where a bucket is.
type Place struct {
	Bucket string
	// Endpoint is http://HOST:PORT or https://HOST:PORT of the store; empty for AWS.
	Endpoint string
	// Region of the bucket; empty: that of AWS_REGION, or the store is asked.
	Region string
}

// Parse reads s3://BUCKET?endpoint=URL&region=NAME. Its errors do not repeat the text, which may contain a
// secret.
func Parse(text string) (Place, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "s3" {
		return Place{}, invalid("not s3://BUCKET?endpoint=URL&region=NAME")
	}
	q, err := url.ParseQuery(u.RawQuery)
	p := Place{Bucket: u.Host, Endpoint: q.Get("endpoint"), Region: q.Get("region")}
	if err != nil || strings.Trim(u.Path, "/")+u.Fragment != "" || p.Bucket == "" && u.User == nil {
		return Place{}, invalid("not s3://BUCKET?endpoint=URL&region=NAME")
	}
	if u.User != nil || strings.Contains(p.Endpoint, "@") {
		return Place{}, invalid("keys do not belong into the URL, which is logged: " + howToSign)
	}
	for name, values := range q {
		if name != "endpoint" && name != "region" || len(values) > 1 {
			return Place{}, invalid("its parameters are endpoint and region, each at most once")
		}
	}
	if e, err := url.Parse(p.Endpoint); p.Endpoint != "" && (err != nil || e.Scheme != "http" && e.Scheme != "https" ||
		e.Host == "" || strings.Trim(e.Path, "/")+e.RawQuery+e.Fragment != "") {
		return Place{}, invalid("the endpoint is not http://HOST:PORT or https://HOST:PORT")
	}
	return p, nil
}

const howToSign = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_SHARED_CREDENTIALS_FILE and AWS_PROFILE"

func invalid(why string) error { return store.Errorf(store.InvalidArgument, "%s", why) }

// Open makes a Store of a bucket. It does no I/O but for reading the access key: from the environment
// variables of AWS, or from a file of credentials that they name.
func Open(p Place) (*Store, error) { return open(p, stall) }

func open(p Place, stall time.Duration) (*Store, error) {
	at, err := url.Parse(cmp.Or(p.Endpoint, "https://s3.amazonaws.com"))
	if err != nil {
		return nil, invalid("the endpoint is no URL")
	}
	keys := credentials.NewChainCredentials([]credentials.Provider{
		&credentials.EnvAWS{}, &credentials.FileAWSCredentials{},
	})
	if v, err := keys.GetWithContext(nil); err != nil || v.SignerType.IsAnonymous() || v.AccessKeyID == "" {
		return nil, invalid("the bucket of bodies needs an access key: " + howToSign)
	}
	transport := &http.Transport{
		Proxy:       http.ProxyFromEnvironment,
		DialContext: (&net.Dialer{Timeout: stall}).DialContext, TLSHandshakeTimeout: stall,
		MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute, DisableCompression: true,
	}
	c, err := minio.NewCore(at.Host, &minio.Options{
		Creds: keys, Secure: at.Scheme == "https", MaxRetries: attempts,
		Region:    cmp.Or(p.Region, os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION")),
		Transport: &patient{next: transport, stall: stall},
	})
	if err != nil {
		return nil, invalid(err.Error())
	}
	return &Store{
		c: *c, bucket: p.Bucket, stall: stall, transport: transport, unsized: make(chan struct{}, unsizedAtOnce),
	}, nil
}

// Close frees connections.
func (s *Store) Close() error {
	s.transport.CloseIdleConnections()
	return nil
}

// Check asks for the bucket. It fails with InvalidArgument if it does not exist, or the key is not good for it.
func (s *Store) Check(ctx context.Context) error {
	there, err := s.c.BucketExists(ctx, s.bucket)
	switch code := minio.ToErrorResponse(err).StatusCode; {
	case err == nil && !there:
		return invalid(fmt.Sprintf("there is no bucket %s", s.bucket))
	case code == http.StatusForbidden, code == http.StatusUnauthorized, code == http.StatusBadRequest:
		return store.Errorf(store.InvalidArgument, "the access key is not good for bucket %s: %w", s.bucket, err)
	}
	return s.kind(err)
}

// Create writes a blob. A body of known length is streamed with one request; its last byte is sent once the body has
// ended well, so a body that fails leaves nothing. One of unknown length goes in parts, through memory; if the process
// dies, the store keeps an incomplete upload.
func (s *Store) Create(ctx context.Context, name string, body io.Reader, size int64) error {
	in := &lastByteLate{r: newReader(body)}
	var err error
	if size >= 0 {
		_, err = s.c.PutObject(ctx, s.bucket, name, in, size, "", "", minio.PutObjectOptions{})
	} else {
		err = s.inParts(ctx, name, in)
	}
	if in.failed != nil {
		return in.failed // as it was: callers know it
	}
	return s.kind(err)
}

func (s *Store) inParts(ctx context.Context, name string, body io.Reader) error {
	wait, cancel := context.WithTimeout(ctx, s.stall)
	defer cancel()
	select {
	case s.unsized <- struct{}{}:
		defer func() { <-s.unsized }()
	case <-wait.Done():
		return store.Errorf(store.Unavailable, "%d bodies of unknown length are on their way into the store of bodies, the "+
			"most at once: send their length", unsizedAtOnce)
	}
	_, err := s.c.Client.PutObject(ctx, s.bucket, name, body, -1, minio.PutObjectOptions{PartSize: partBytes})
	return err
}

// Open opens n bytes of a blob, from an offset on.
func (s *Store) Open(ctx context.Context, name string, offset, n int64) (io.ReadCloser, int64, error) {
	if n <= 0 {
		return s.nothingOf(ctx, name)
	}
	var o minio.GetObjectOptions
	if err := o.SetRange(offset, offset+n-1); err != nil {
		return nil, 0, invalid(err.Error())
	}
	body, _, header, err := s.c.GetObject(ctx, s.bucket, name, o)
	if minio.ToErrorResponse(err).StatusCode == http.StatusRequestedRangeNotSatisfiable {
		return s.nothingOf(ctx, name) // the blob is shorter, as its size says
	}
	if err != nil {
		return nil, 0, s.kind(err)
	}
	_, total, _ := strings.Cut(header.Get("Content-Range"), "/")
	size, err := strconv.ParseInt(total, 10, 64)
	if err != nil {
		_ = body.Close()
		return nil, 0, store.Errorf(store.Unavailable, "the store of bodies does not answer ranges: Content-Range is %.64q",
			header.Get("Content-Range"))
	}
	return &reading{body, s}, size, nil
}

// nothingOf returns the size of a blob.
func (s *Store) nothingOf(ctx context.Context, name string) (io.ReadCloser, int64, error) {
	info, err := s.c.StatObject(ctx, s.bucket, name, minio.StatObjectOptions{})
	if err = s.kind(err); errors.Is(err, store.NotFound) {
		// The answer to HEAD does not tell a blob that is lost from a bucket that is.
		if there, err := s.c.BucketExists(ctx, s.bucket); err != nil || !there {
			return nil, 0, store.Errorf(store.Unavailable, "the bucket of bodies, %s, is not there: %w", s.bucket, s.kind(err))
		}
	}
	return http.NoBody, info.Size, err
}

// reading gives errors of a body their kind.
type reading struct {
	io.ReadCloser
	s *Store
}

func (r *reading) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if err != nil && err != io.EOF { //nolint:errorlint // what readers return
		err = r.s.kind(err)
	}
	return n, err
}

// Delete deletes a blob.
func (s *Store) Delete(ctx context.Context, name string) error {
	err := s.kind(s.c.RemoveObject(ctx, s.bucket, name, minio.RemoveObjectOptions{}))
	if errors.Is(err, store.NotFound) {
		return nil
	}
	return err
}

// List lists blobs in bytewise order of their names, with one page of them in memory. It refuses stores that list in
// another order.
func (s *Store) List(ctx context.Context, prefix, after string, each func(name string, size int64) error) error {
	last := after
	for o := range s.c.ListObjectsIter(ctx, s.bucket, minio.ListObjectsOptions{
		Prefix: prefix, StartAfter: after, Recursive: true,
	}) {
		switch {
		case o.Err != nil:
			return s.kind(o.Err)
		case o.Key <= last:
			return store.Errorf(store.Corrupt, "the store of bodies lists %.64q after %.64q: bodies need one that lists in "+
				"bytewise order", o.Key, last)
		}
		last = o.Key
		if err := each(o.Key, o.Size); err != nil {
			return err
		}
	}
	return s.kind(ctx.Err()) // which the listing does not report
}

// kind gives an error of the store its kind.
func (s *Store) kind(err error) error {
	var known *store.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	if k := store.KindOf(err); k == store.Timeout {
		return store.Wrap("the bucket of bodies", err)
	}
	switch code := minio.ToErrorResponse(err).Code; code {
	case "NoSuchKey":
		return store.Errorf(store.NotFound, "there is no such blob: %w", err)
	case "InsufficientStorage", "XMinioStorageFull", "QuotaExceeded", "XMinioAdminBucketQuotaExceeded":
		return store.Errorf(store.Unavailable, "the bucket of bodies, %s: %w: %w", s.bucket, store.ErrFull, err)
	}
	return store.Errorf(store.Unavailable, "the bucket of bodies, %s: %w", s.bucket, err)
}
