package s3tour

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awscredentials "github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/s3api"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// The SDKs of others are oracles: each has a signer of its own. They are tested here
// and not beside s3api because whatever a package's tests import is instrumented when
// one of its targets is fuzzed, and the SDKs are larger than all of evenkeel.

// testKeys are the keys of a server under test.
const testKeys = `
keys:
  - {id: ADMIN, secret: the secret of the admin, access: read-write, everything: true}
  - {id: READER, secret: the secret of the reader, access: read-only, everything: true}
complete: true
`

// server is a running handler over memory.
type server struct {
	url     string
	handler http.Handler
}

func serveKeys(t *testing.T, o s3api.Options) *server {
	t.Helper()
	st := memstore.New()
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	c, err := listing.New(st, listing.Options{})
	require.NoError(t, err)
	o.Keys, err = s3api.ParseKeys([]byte(testKeys))
	require.NoError(t, err)
	h, err := s3api.New(s3api.Over(c), o)
	require.NoError(t, err)
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return &server{srv.URL, h}
}

// noKey is a secret that no key of testKeys has.
const noKey = "some other secret"

// forms are the ways to reach a server: SDKs sign bodies in another way where
// the connection is encrypted.
func forms(t *testing.T, f func(t *testing.T, s *server, client *http.Client)) {
	for _, form := range []string{"http", "https"} {
		t.Run(form, func(t *testing.T) {
			s := serveKeys(t, s3api.Options{})
			client := http.DefaultClient
			if form == "https" {
				tls := httptest.NewTLSServer(s.handler)
				t.Cleanup(tls.Close)
				s.url, client = tls.URL, tls.Client()
			}
			f(t, s, client)
		})
	}
}

func awsClient(s *server, client *http.Client, id, secret string, options ...func(*s3.Options)) *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint: aws.String(s.url), Region: "us-east-1", UsePathStyle: true, HTTPClient: client,
		RetryMaxAttempts: 1,
		Credentials:      awscredentials.NewStaticCredentialsProvider(id, secret, ""),
	}, options...)
}

// awsCode is the S3 error code that the SDK reports.
func awsCode(err error) string {
	var e smithy.APIError
	if errors.As(err, &e) {
		return e.ErrorCode()
	}
	return fmt.Sprint(err)
}

// hardKeys have all that signers and paths disagree about.
func hardKeys() []string {
	return []string{"plain", "a b", "a+b", "a%2Fb", "ü/世", "a//b", "/a", "../a", "a/./b", "~-_.!*'()",
		"a&b=c?d#e", "$@:;,[]{}|\\^`\"<>", "\x01", "line\nfeed"}
}

func TestAWSSDKForGo(t *testing.T) {
	forms(t, func(t *testing.T, s *server, client *http.Client) {
		ctx := t.Context()
		c := awsClient(s, client, "ADMIN", "the secret of the admin")
		_, err := c.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: aws.String("photos")})
		require.NoError(t, err)
		for _, key := range hardKeys() {
			_, err = c.PutObject(ctx, &s3.PutObjectInput{
				Bucket: aws.String("photos"), Key: &key, Body: strings.NewReader(key),
				Metadata: map[string]string{"name": "  two  spaces "},
			})
			require.NoError(t, err, "%q", key)
			got, err := c.GetObject(ctx, &s3.GetObjectInput{Bucket: aws.String("photos"), Key: &key})
			require.NoError(t, err, "%q", key)
			body, err := io.ReadAll(got.Body)
			require.NoError(t, err)
			require.Equal(t, key, string(body))
		}
		for _, a := range types.ChecksumAlgorithm("").Values() {
			_, err = c.PutObject(ctx, &s3.PutObjectInput{
				Bucket: aws.String("photos"), Key: aws.String("sum"), Body: strings.NewReader("body"),
				ChecksumAlgorithm: a,
			})
			switch a {
			case "XXHASH64", "XXHASH3", "XXHASH128", "SHA512", "MD5":
				require.Error(t, err, "%s is one that listd does not have", a)
			default:
				require.NoError(t, err, "%s", a)
			}
		}
		_, err = c.PutObject(ctx, &s3.PutObjectInput{
			Bucket: aws.String("photos"), Key: aws.String("unsigned"), Body: strings.NewReader("body"),
		}, s3.WithAPIOptions(v4.SwapComputePayloadSHA256ForUnsignedPayloadMiddleware))
		require.NoError(t, err)
		plain := &s3.GetObjectInput{Bucket: aws.String("photos"), Key: aws.String("plain")}
		_, err = awsClient(s, client, "ADMIN", noKey).GetObject(ctx, plain)
		require.Equal(t, "SignatureDoesNotMatch", awsCode(err))
		_, err = awsClient(s, client, "NOBODY", noKey).GetObject(ctx, plain)
		require.Equal(t, "InvalidAccessKeyId", awsCode(err))
		_, err = awsClient(s, client, "READER", "the secret of the reader").PutObject(ctx, &s3.PutObjectInput{
			Bucket: plain.Bucket, Key: plain.Key, Body: strings.NewReader("x"),
		})
		require.Equal(t, "AccessDenied", awsCode(err))

		presign := s3.NewPresignClient(c)
		for _, key := range hardKeys() {
			put, err := presign.PresignPutObject(ctx, &s3.PutObjectInput{
				Bucket: aws.String("photos"), Key: &key, ContentType: aws.String("text/x"),
				Metadata: map[string]string{"a": "b"},
			})
			require.NoError(t, err)
			requirePresigned(t, client, http.MethodPut, put.URL, put.SignedHeader, "presigned "+key, "")
			get, err := presign.PresignGetObject(ctx, &s3.GetObjectInput{Bucket: aws.String("photos"), Key: &key})
			require.NoError(t, err)
			requirePresigned(t, client, http.MethodGet, get.URL, get.SignedHeader, "", "presigned "+key)
		}
	})
}

// requirePresigned uses a presigned URL as its maker meant it, and then for
// something else.
func requirePresigned(t *testing.T, client *http.Client, method, raw string, header http.Header, body, want string) {
	t.Helper()
	call := func(raw string) (int, string) {
		req, err := http.NewRequest(method, raw, strings.NewReader(body))
		require.NoError(t, err)
		for name, values := range header {
			req.Header[http.CanonicalHeaderKey(name)] = values
		}
		resp, err := client.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(data)
	}
	status, got := call(raw)
	require.Equal(t, 200, status, "%s %s: %s", method, raw, got)
	require.Equal(t, want, got)
	u, err := url.Parse(raw)
	require.NoError(t, err)
	u.RawQuery += "&x=y"
	status, _ = call(u.String())
	require.Equal(t, 403, status)
}

func minioClient(t *testing.T, s *server, client *http.Client, id, secret string, o minio.Options) *minio.Client {
	t.Helper()
	u, err := url.Parse(s.url)
	require.NoError(t, err)
	o.Creds, o.Secure, o.Transport = credentials.NewStaticV4(id, secret, ""), u.Scheme == "https", client.Transport
	o.Region, o.MaxRetries = "us-east-1", 1
	c, err := minio.New(u.Host, &o)
	require.NoError(t, err)
	return c
}

func TestMinioGo(t *testing.T) {
	forms(t, func(t *testing.T, s *server, client *http.Client) {
		ctx := t.Context()
		for name, o := range map[string]minio.Options{"chunks": {}, "trailers": {TrailingHeaders: true}} {
			c := minioClient(t, s, client, "ADMIN", "the secret of the admin", o)
			require.NoError(t, c.MakeBucket(ctx, name, minio.MakeBucketOptions{}))
			for _, sum := range []minio.ChecksumType{
				minio.ChecksumNone, minio.ChecksumCRC32, minio.ChecksumCRC32C, minio.ChecksumSHA1, minio.ChecksumSHA256,
				minio.ChecksumCRC64NVME,
			} {
				if sum.IsSet() && !o.TrailingHeaders {
					continue // minio-go would refuse
				}
				for _, key := range hardKeys() {
					if strings.HasPrefix(key, "/") {
						continue // minio-go drops the slash
					}
					body := strings.Repeat(key, 100)
					_, err := c.PutObject(ctx, name, key, strings.NewReader(body), int64(len(body)),
						minio.PutObjectOptions{Checksum: sum, DisableMultipart: true})
					require.NoError(t, err, "%q %s", key, sum)
					o, err := c.GetObject(ctx, name, key, minio.GetObjectOptions{})
					require.NoError(t, err)
					data, err := io.ReadAll(o)
					require.NoError(t, err, "%q %s", key, sum)
					require.Equal(t, body, string(data))
				}
			}
			_, err := minioClient(t, s, client, "ADMIN", noKey, o).
				PutObject(ctx, name, "k", strings.NewReader("v"), 1, minio.PutObjectOptions{})
			require.Equal(t, "SignatureDoesNotMatch", minio.ToErrorResponse(err).Code)
			_, err = minioClient(t, s, client, "READER", "the secret of the reader", o).
				PutObject(ctx, name, "k", strings.NewReader("v"), 1, minio.PutObjectOptions{})
			require.Equal(t, "AccessDenied", minio.ToErrorResponse(err).Code)

			put, err := c.PresignedPutObject(ctx, name, "a b/ü", time.Minute)
			require.NoError(t, err)
			requirePresigned(t, client, http.MethodPut, put.String(), nil, "presigned", "")
			get, err := c.PresignedGetObject(ctx, name, "a b/ü", time.Minute, url.Values{})
			require.NoError(t, err)
			requirePresigned(t, client, http.MethodGet, get.String(), nil, "", "presigned")
		}
	})
}

// altering is a connection on which somebody changes bodies.
type altering struct {
	http.RoundTripper
	alter func([]byte) []byte
}

func (a altering) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPut && r.Body != nil {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		body = a.alter(body)
		r = r.Clone(r.Context())
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	return a.RoundTripper.RoundTrip(r)
}

// Whoever changes a signed body on its way, in any byte, is found out.
func TestAlteredOnTheWay(t *testing.T) {
	s := serveKeys(t, s3api.Options{})
	ctx := context.WithoutCancel(t.Context())
	admin := awsSDK{awsClient(s, http.DefaultClient, "ADMIN", "the secret of the admin")}
	require.NoError(t, admin.Create(ctx, "photos"))
	for name, o := range map[string]minio.Options{"chunks": {}, "trailers": {TrailingHeaders: true}} {
		length := 0
		for at := -1; at < length; at++ {
			client := &http.Client{Transport: altering{http.DefaultTransport, func(body []byte) []byte {
				length = len(body)
				if at >= 0 {
					body[at] ^= 1
				}
				return body
			}}}
			c := minioClient(t, s, client, "ADMIN", "the secret of the admin", o)
			opts := minio.PutObjectOptions{}
			if o.TrailingHeaders {
				opts.Checksum = minio.ChecksumCRC32C
			}
			_, err := c.PutObject(ctx, "photos", name, strings.NewReader("the body"), 8, opts)
			if at < 0 {
				require.NoError(t, err, name)
				require.NoError(t, admin.drop(ctx, "photos", []string{name}))
				continue
			}
			body, gone := admin.get(ctx, "photos", name)
			if err == nil {
				// Only what means the same may pass: the framing's white space.
				require.NoError(t, gone)
				require.Equal(t, "the body", string(body), "byte %d of %s", at, name)
				require.NoError(t, admin.drop(ctx, "photos", []string{name}))
				t.Logf("%s: byte %d of %d may be altered", name, at, length)
				continue
			}
			require.Equal(t, "NoSuchKey", awsCode(gone))
		}
		require.Greater(t, length, 100, "the body was not in chunks")
	}
}

// Both SDKs put the bucket into the host's name if they are asked to.
func TestVirtualHostStyle(t *testing.T) {
	s := serveKeys(t, s3api.Options{HostSuffixes: []string{"s3.example.test"}})
	real := strings.TrimPrefix(s.url, "http://")
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, real)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: dial}}
	s.url = "http://s3.example.test:9000"
	ctx := t.Context()
	c := awsClient(s, client, "ADMIN", "the secret of the admin", func(o *s3.Options) { o.UsePathStyle = false })
	_, err := c.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: aws.String("photos")})
	require.NoError(t, err)
	m := minioClient(t, s, client, "ADMIN", "the secret of the admin",
		minio.Options{BucketLookup: minio.BucketLookupDNS})
	for _, key := range hardKeys() {
		_, err := c.PutObject(ctx, &s3.PutObjectInput{
			Bucket: aws.String("photos"), Key: &key, Body: strings.NewReader(key),
		})
		require.NoError(t, err, "%q", key)
		if !strings.HasPrefix(key, "/") { // minio-go drops the slash
			info, err := m.StatObject(ctx, "photos", key, minio.StatObjectOptions{})
			require.NoError(t, err, "%q", key)
			require.EqualValues(t, len(key), info.Size)
		}
	}
	page, err := c.ListObjectsV2(ctx, &s3.ListObjectsV2Input{
		Bucket: aws.String("photos"), EncodingType: types.EncodingTypeUrl,
	})
	require.NoError(t, err)
	require.Len(t, page.Contents, len(hardKeys()))
	buckets, err := c.ListBuckets(ctx, &s3.ListBucketsInput{})
	require.NoError(t, err)
	require.Equal(t, "photos", *buckets.Buckets[0].Name)
}
