package s3tour

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awscredentials "github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"golang.org/x/sync/errgroup"
)

// atOnce is the number of files that a client with an SDK puts or gets at the same time.
const atOnce = 8

// bare is the interface to an SDK, which puts, gets, lists and deletes objects. The type program makes a Client of it.
type bare interface {
	put(ctx context.Context, bucket, key string, body []byte) error
	get(ctx context.Context, bucket, key string) ([]byte, error)
	// list calls f with each key and each common prefix.
	list(ctx context.Context, bucket, prefix, delimiter string, f func(name string, folder bool)) error
	// drop deletes keys, many by one request.
	drop(ctx context.Context, bucket string, keys []string) error
}

// program is a Client that uses an SDK. It does in Go what the other clients do by themselves, e.g. compares a
// directory with a bucket.
type program struct{ bare }

// Up puts all files of a directory below a prefix of a bucket, and deletes the keys there that have no file.
func (p program) Up(ctx context.Context, dir, bucket, prefix string) error {
	here := map[string]bool{}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		key := prefix + filepath.ToSlash(name)
		here[key] = true
		g.Go(func() error {
			body, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			return p.put(ctx, bucket, key, body)
		})
		return nil
	})
	if err := errors.Join(err, g.Wait()); err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	var gone []string
	err = p.list(ctx, bucket, prefix, "", func(key string, _ bool) {
		if !here[key] {
			gone = append(gone, key)
		}
	})
	if err != nil || len(gone) == 0 {
		return err
	}
	return p.drop(ctx, bucket, gone)
}

func (p program) Down(ctx context.Context, bucket, prefix, dir string) error {
	keys, err := p.Keys(ctx, bucket, prefix)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for _, key := range keys {
		g.Go(func() error {
			body, err := p.get(ctx, bucket, prefix+key)
			if err != nil {
				return err
			}
			at := filepath.Join(dir, filepath.FromSlash(key))
			return errors.Join(os.MkdirAll(filepath.Dir(at), 0o700), os.WriteFile(at, body, 0o600))
		})
	}
	return g.Wait()
}

func (p program) Keys(ctx context.Context, bucket, prefix string) (keys []string, err error) {
	err = p.list(ctx, bucket, prefix, "",
		func(key string, _ bool) { keys = append(keys, strings.TrimPrefix(key, prefix)) })
	return keys, err
}

func (p program) Folders(ctx context.Context, bucket, prefix string) (folders []string, err error) {
	err = p.list(ctx, bucket, prefix, "/", func(name string, folder bool) {
		if folder {
			folders = append(folders, strings.TrimPrefix(name, prefix))
		}
	})
	return folders, err
}

func (p program) Empty(ctx context.Context, bucket string) error {
	var keys []string
	if err := p.list(ctx, bucket, "", "", func(key string, _ bool) { keys = append(keys, key) }); err != nil {
		return err
	}
	return p.drop(ctx, bucket, keys)
}

// attempts returns the largest number of times that an SDK sends a request.
func (p Place) attempts() int {
	if p.Patient {
		return 10
	}
	return 1
}

// AWSSDK returns a client that uses aws-sdk-go-v2.
func AWSSDK(p Place) Client {
	c := awsSDK{s3.New(s3.Options{
		BaseEndpoint: aws.String(p.URL), Region: p.region(), UsePathStyle: true, RetryMaxAttempts: p.attempts(),
		Credentials: awscredentials.NewStaticCredentialsProvider(p.KeyID, p.Secret, ""),
	})}
	return struct {
		program
		awsSDK
	}{program{c}, c}
}

type awsSDK struct{ c *s3.Client }

func (a awsSDK) Create(ctx context.Context, bucket string) error {
	_, err := a.c.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: &bucket})
	return err
}

func (a awsSDK) Remove(ctx context.Context, bucket string) error {
	_, err := a.c.DeleteBucket(ctx, &s3.DeleteBucketInput{Bucket: &bucket})
	return err
}

func (a awsSDK) put(ctx context.Context, bucket, key string, body []byte) error {
	_, err := a.c.PutObject(ctx, &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: bytes.NewReader(body)})
	return err
}

func (a awsSDK) get(ctx context.Context, bucket, key string) ([]byte, error) {
	out, err := a.c.GetObject(ctx, &s3.GetObjectInput{Bucket: &bucket, Key: &key})
	if err != nil {
		return nil, err
	}
	defer out.Body.Close()
	return io.ReadAll(out.Body)
}

func (a awsSDK) list(ctx context.Context, bucket, prefix, delimiter string, f func(string, bool)) error {
	in := &s3.ListObjectsV2Input{Bucket: &bucket, Prefix: &prefix, MaxKeys: aws.Int32(page)}
	if delimiter != "" {
		in.Delimiter = &delimiter
	}
	for pages := s3.NewListObjectsV2Paginator(a.c, in); pages.HasMorePages(); {
		got, err := pages.NextPage(ctx)
		if err != nil {
			return err
		}
		for _, o := range got.Contents {
			f(*o.Key, false)
		}
		for _, o := range got.CommonPrefixes {
			f(*o.Prefix, true)
		}
	}
	return nil
}

func (a awsSDK) drop(ctx context.Context, bucket string, keys []string) error {
	const most = 1000 // of one request
	for len(keys) > 0 {
		n := min(most, len(keys))
		var d types.Delete
		for _, key := range keys[:n] {
			d.Objects = append(d.Objects, types.ObjectIdentifier{Key: aws.String(key)})
		}
		keys = keys[n:]
		out, err := a.c.DeleteObjects(ctx, &s3.DeleteObjectsInput{Bucket: &bucket, Delete: &d})
		if err != nil {
			return err
		}
		if len(out.Errors) > 0 {
			return errors.New(aws.ToString(out.Errors[0].Message))
		}
	}
	return nil
}

// Minio returns a client that uses minio-go.
func Minio(p Place) (Client, error) {
	u, err := url.Parse(p.URL)
	if err != nil {
		return nil, err
	}
	c, err := minio.New(u.Host, &minio.Options{
		Creds: credentials.NewStaticV4(p.KeyID, p.Secret, ""), Region: p.region(), MaxRetries: p.attempts(),
	})
	if err != nil {
		return nil, err
	}
	m := minioSDK{c}
	return struct {
		program
		minioSDK
	}{program{m}, m}, nil
}

type minioSDK struct{ c *minio.Client }

func (m minioSDK) Create(ctx context.Context, bucket string) error {
	return m.c.MakeBucket(ctx, bucket, minio.MakeBucketOptions{})
}

func (m minioSDK) Remove(ctx context.Context, bucket string) error {
	return m.c.RemoveBucket(ctx, bucket)
}

func (m minioSDK) put(ctx context.Context, bucket, key string, body []byte) error {
	_, err := m.c.PutObject(ctx, bucket, key, bytes.NewReader(body), int64(len(body)), minio.PutObjectOptions{})
	return err
}

func (m minioSDK) get(ctx context.Context, bucket, key string) ([]byte, error) {
	o, err := m.c.GetObject(ctx, bucket, key, minio.GetObjectOptions{})
	if err != nil {
		return nil, err
	}
	defer o.Close()
	return io.ReadAll(o)
}

func (m minioSDK) list(ctx context.Context, bucket, prefix, delimiter string, f func(string, bool)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for o := range m.c.ListObjects(ctx, bucket,
		minio.ListObjectsOptions{Prefix: prefix, Recursive: delimiter == "", MaxKeys: page}) {
		if o.Err != nil {
			return o.Err
		}
		f(o.Key, delimiter != "" && strings.HasSuffix(o.Key, delimiter))
	}
	return nil
}

func (m minioSDK) drop(ctx context.Context, bucket string, keys []string) error {
	objects := make(chan minio.ObjectInfo)
	go func() {
		defer close(objects)
		for _, key := range keys {
			objects <- minio.ObjectInfo{Key: key}
		}
	}()
	var err error
	for e := range m.c.RemoveObjects(ctx, bucket, objects, minio.RemoveObjectsOptions{}) {
		err = errors.Join(err, e.Err)
	}
	return err
}
