// Package s3blobs stores the bodies of objects (blobs) in a bucket of another S3 store, e.g. AWS. Open returns a Store,
// which objects.New takes. Nothing else may be in the bucket.
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

	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/store"
)

// Store stores blobs, which are bodies of objects, in a bucket of another S3 store. It is safe for concurrent use, also
// by several processes. If the bucket can't be used, for whatever reason,
// the error is Unavailable. After this error of Create, the blob may be stored all the same. Close closes idle
// connections to the S3 store.
type Store interface {
	objects.Blobs
	objects.Tops
	io.Closer
	// Check asks the S3 store whether the bucket can be used. It fails with InvalidArgument if the bucket does not
	// exist, or if the access key does not allow its use.
	Check(ctx context.Context) error
}

// remote implements Store.
type remote struct {
	c         minio.Core
	bucket    string
	stall     time.Duration
	transport *http.Transport
	// unsized limits the number of bodies of unknown length that are sent at the same time, since each of them takes
	// partBytes of memory.
	unsized chan struct{}
}

const (
	// stall is the longest time that the server may take to accept or to send the next bytes. answerTime is the longest
	// time that the server may take to answer after it has got the whole body.
	stall      = 10 * time.Second
	answerTime = time.Minute
	// attempts is the largest number of times that a request is sent if the request has no body, or a body in memory.
	attempts = 2
	// partBytes is the size in bytes of the parts in which a body of unknown length is sent. Each part is first in
	// memory. It is the smallest size that S3 allows, and enough for the longest body in S3's 10,000 parts.
	// unsizedAtOnce is the largest number of bodies of unknown length that are sent at a time.
	partBytes     = 5 << 20
	unsizedAtOnce = 8
)

// Place says where a bucket is: its name, the address of the S3 store, and the region.
type Place struct {
	Bucket string
	// Endpoint is the address of the S3 store, as http://HOST:PORT or https://HOST:PORT. An empty Endpoint means AWS.
	Endpoint string
	// Region is the region of the bucket. If Region is empty, the region is taken from the environment variable
	// AWS_REGION or, if that is not set, from an answer of the S3 store.
	Region string
}

// Parse returns the Place (a bucket and how to reach it) that a text like s3://BUCKET?endpoint=URL&region=NAME
// describes. It fails with InvalidArgument if the text has another form. The errors of Parse do not repeat the text,
// which may contain a secret.
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

// Open returns a Store that keeps blobs in the bucket p. Open does not contact the S3 store. It reads the access key
// from the environment variables of AWS, or from a file of credentials that they name. It fails with InvalidArgument if
// there is no access key.
func Open(p Place) (Store, error) {
	s, err := open(p, stall)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func open(p Place, stall time.Duration) (*remote, error) {
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
	return &remote{
		c: *c, bucket: p.Bucket, stall: stall, transport: transport, unsized: make(chan struct{}, unsizedAtOnce),
	}, nil
}

func (s *remote) Close() error {
	s.transport.CloseIdleConnections()
	return nil
}

func (s *remote) Check(ctx context.Context) error {
	there, err := s.c.BucketExists(ctx, s.bucket)
	switch code := minio.ToErrorResponse(err).StatusCode; {
	case err == nil && !there:
		return invalid(fmt.Sprintf("there is no bucket %s", s.bucket))
	case code == http.StatusForbidden, code == http.StatusUnauthorized, code == http.StatusBadRequest:
		return store.Errorf(store.InvalidArgument, "the access key is not good for bucket %s: %w", s.bucket, err)
	}
	return s.kind(err)
}

// Create writes a blob with the given name. If the size of the body is known, one request sends the whole body. The
// last byte is held back until the body has ended without an error, so a body that fails leaves no blob. If the size is
// negative, the body is sent in parts, each of which is in memory first. If the process dies meanwhile, the S3 store
// keeps an incomplete upload.
func (s *remote) Create(ctx context.Context, name string, body io.Reader, size int64) error {
	in := &lastByteLate{r: newReader(body)}
	var err error
	if size >= 0 {
		_, err = s.c.PutObject(ctx, s.bucket, name, in, size, "", "", minio.PutObjectOptions{})
	} else {
		err = s.inParts(ctx, name, in)
	}
	if in.failed != nil {
		return in.failed // unchanged, as callers know their own errors
	}
	return s.kind(err)
}

func (s *remote) inParts(ctx context.Context, name string, body io.Reader) error {
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

// Open returns a reader of n bytes of a blob, from offset on, and the size of the whole blob in bytes. It fails with
// NotFound if there is no such blob.
func (s *remote) Open(ctx context.Context, name string, offset, n int64) (io.ReadCloser, int64, error) {
	if n <= 0 {
		return s.nothingOf(ctx, name)
	}
	var o minio.GetObjectOptions
	if err := o.SetRange(offset, offset+n-1); err != nil {
		return nil, 0, invalid(err.Error())
	}
	body, _, header, err := s.c.GetObject(ctx, s.bucket, name, o)
	if minio.ToErrorResponse(err).StatusCode == http.StatusRequestedRangeNotSatisfiable {
		return s.nothingOf(ctx, name) // the blob ends before offset, as its size will tell
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

// nothingOf returns an empty body, and the size of the named blob in bytes. It serves a read of 0 bytes, and a read
// that begins behind the end of the blob. It fails with NotFound if there is no such blob.
func (s *remote) nothingOf(ctx context.Context, name string) (io.ReadCloser, int64, error) {
	info, err := s.c.StatObject(ctx, s.bucket, name, minio.StatObjectOptions{})
	if err = s.kind(err); errors.Is(err, store.NotFound) {
		// The answer to HEAD is the same for a blob that is missing and for a bucket that is missing.
		if there, err := s.c.BucketExists(ctx, s.bucket); err != nil || !there {
			return nil, 0, store.Errorf(store.Unavailable, "the bucket of bodies, %s, is not there: %w", s.bucket, s.kind(err))
		}
	}
	return http.NoBody, info.Size, err
}

// reading is a reader of the body of a blob. It returns errors of the S3 store as store errors, which have a kind such
// as Unavailable.
type reading struct {
	io.ReadCloser
	s *remote
}

func (r *reading) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if err != nil && err != io.EOF { //nolint:errorlint // what readers return
		err = r.s.kind(err)
	}
	return n, err
}

// Delete removes a blob. It also succeeds if the blob does not exist.
func (s *remote) Delete(ctx context.Context, name string) error {
	err := s.kind(s.c.RemoveObject(ctx, s.bucket, name, minio.RemoveObjectOptions{}))
	if errors.Is(err, store.NotFound) {
		return nil
	}
	return err
}

// List calls the func each with the name and the size of every blob whose name begins with prefix, in bytewise order of
// the names. The parameter after is a name: only blobs with greater names are listed. List keeps one page of names in
// memory. It fails with Corrupt if the S3 store lists in another order.
func (s *remote) List(ctx context.Context, prefix, after string, each func(name string, size int64) error) error {
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

// Tops calls the func each with the text before the first slash of the names of blobs, which stands for a bucket (see
// objects.Tops).
func (s *remote) Tops(ctx context.Context, each func(top string) error) error {
	for o := range s.c.ListObjectsIter(ctx, s.bucket, minio.ListObjectsOptions{}) {
		if o.Err != nil {
			return s.kind(o.Err)
		}
		if top, ok := strings.CutSuffix(o.Key, "/"); ok {
			if err := each(top); err != nil {
				return err
			}
		}
	}
	return s.kind(ctx.Err()) // which the listing does not report
}

// Written returns the time when the named blob was stored, by the clock of the S3 store. It fails with NotFound if
// there is no such blob.
func (s *remote) Written(ctx context.Context, name string) (time.Time, error) {
	info, err := s.c.StatObject(ctx, s.bucket, name, minio.StatObjectOptions{})
	return info.LastModified, s.kind(err)
}

// kind returns err, an error of the S3 store, as a store error, which has a kind such as NotFound or Unavailable.
func (s *remote) kind(err error) error {
	if err == nil || errors.Is(err, store.KindOf(err)) {
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
