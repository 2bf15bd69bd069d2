package main

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/internal/reload"
	"github.com/evenkeel/evenkeel/internal/sigv4"
	"github.com/evenkeel/evenkeel/internal/wait"
)

// remote is a client of a listd server. It sends requests over S3, and repeats requests after failures. The methods of
// a remote are safe for concurrent use.
type remote struct {
	base *url.URL
	http *http.Client
	// patience is the longest time for which a request is repeated while the server is unavailable.
	patience time.Duration
	// keyID, secret and region sign requests: the access key, its secret, and the server's region. If keyID is empty,
	// requests are not signed.
	keyID, secret, region string
	// met is true once the server has answered. The address of the server is then right, and a server that later
	// refuses connections may be restarting, so requests are repeated.
	met atomic.Bool
}

// serverFlags are the command-line flags of the commands that send requests to a listd server, e.g. --server.
type serverFlags struct {
	Server       string        `default:"http://127.0.0.1:9000" help:"S3 address of the server, http or https."`
	ServerCAFile string        `name:"server-ca-file" placeholder:"FILE" help:"${server_server_ca_file=}"`
	Patience     time.Duration `default:"1m" help:"How long to retry while the server is unavailable or overloaded."`
	AccessKey    string        `env:"EVENKEEL_ACCESS_KEY,AWS_ACCESS_KEY_ID" placeholder:"ID" help:"${server_access_key=}"`
	SecretKey    string        `env:"EVENKEEL_SECRET_KEY,AWS_SECRET_ACCESS_KEY" placeholder:"SECRET" help:"${server_secret_key=}"`
	SignRegion   string        `default:"us-east-1" help:"Region of the server, for the signature."`
}

// connect returns a client of the server that the flags name. concurrency is the largest number of requests that the
// caller sends at once. connect sends nothing yet.
func (f *serverFlags) connect(concurrency int) (*remote, error) {
	base, err := url.Parse(f.Server)
	if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" ||
		strings.Trim(base.Path, "/") != "" {
		return nil, daemon.UsageError("--server %q is not an address like http://127.0.0.1:9000", f.Server)
	}
	if (f.AccessKey == "") != (f.SecretKey == "") {
		return nil, daemon.UsageError("--access-key and --secret-key need each other (EVENKEEL_ACCESS_KEY, " +
			"EVENKEEL_SECRET_KEY)")
	}
	trust, err := reload.ClientTLS("--server", f.ServerCAFile, "", "")
	if err != nil {
		return nil, daemon.Exit(daemon.ExitUsage, err)
	}
	transport := &http.Transport{
		TLSClientConfig:     trust,
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		MaxIdleConnsPerHost: concurrency, MaxIdleConns: concurrency, IdleConnTimeout: time.Minute,
		ResponseHeaderTimeout: time.Minute, DisableCompression: true,
	}
	return &remote{
		base: base, patience: f.Patience, keyID: f.AccessKey, secret: f.SecretKey, region: f.SignRegion,
		http: &http.Client{Transport: transport, CheckRedirect: noRedirects},
	}, nil
}

func noRedirects(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// serverError is an error answer of the server: the content of S3's XML document, and the HTTP status. The field wait
// is the time of the header Retry-After, or 0 if the answer has no such header.
type serverError struct {
	XMLName   xml.Name `xml:"Error"`
	Code      string
	Message   string
	RequestID string `xml:"RequestId"`
	status    int
	wait      time.Duration
}

func (e *serverError) Error() string {
	if e.Code == "" {
		return fmt.Sprintf("the server answered %d %s", e.status, http.StatusText(e.status))
	}
	return fmt.Sprintf("%s: %s (request %s)", e.Code, e.Message, e.RequestID)
}

// lasting is an error that would occur again if the client repeated the request, e.g. a certificate that is not
// trusted. So the client does not repeat the request.
type lasting struct{ error }

// code returns the error code of S3, such as NoSuchBucket, if err is an error answer of the server with a code. For any
// other err the result is "".
func code(err error) string {
	if e, ok := errors.AsType[*serverError](err); ok {
		return e.Code
	}
	return ""
}

// call is one request to the server, in parts. Each attempt to send the request makes a new HTTP request from the
// parts.
type call struct {
	method, bucket string
	key            []byte
	query          url.Values
	header         http.Header
	body           []byte
}

// url returns the URL of the request c. The path has the key unchanged, so url removes no "//" or "..".
func (r *remote) url(c *call) *url.URL {
	u := *r.base
	u.Path, u.RawPath = "/", "/"
	if c.bucket != "" {
		u.Path = "/" + c.bucket
		u.RawPath = "/" + url.PathEscape(c.bucket)
	}
	if len(c.key) > 0 {
		u.Path += "/" + string(c.key)
		u.RawPath += "/" + sigv4.EscapePath(string(c.key))
	}
	u.RawQuery = c.query.Encode()
	return &u
}

const (
	// maxAnswer is the largest size of an answer that is read into memory, in bytes; the rest of a longer answer is
	// dropped. A page of a thousand entries is far smaller.
	maxAnswer = 64 << 20
	// firstPause and maxPause are the first and the longest pause between two attempts to send a request.
	firstPause = 100 * time.Millisecond
	maxPause   = 30 * time.Second
)

// do sends the request c and returns the body of the answer. If the server fails or cannot be reached, do repeats the
// request until the time limit patience has passed, except if the server's disk is full. All requests of this program
// may be repeated without harm.
func (r *remote) do(ctx context.Context, c *call) ([]byte, error) {
	answer, err := r.body(ctx, c)
	if err != nil {
		return nil, err
	}
	defer answer.Close()
	var buf bytes.Buffer
	if _, err := buf.ReadFrom(io.LimitReader(answer, maxAnswer)); err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", r.base, err)
	}
	return buf.Bytes(), nil
}

// body sends the request c and returns the body of the answer as a stream, which the caller reads and closes. If the
// server fails or cannot be reached, body repeats the request until the time limit patience has passed.
func (r *remote) body(ctx context.Context, c *call) (io.ReadCloser, error) {
	u := r.url(c)
	until := time.Now().Add(r.patience)
	pauses := wait.Backoff{First: firstPause, Most: maxPause}
	for failures := 1; ; failures++ {
		answer, err := r.once(ctx, u, c)
		if err == nil {
			return answer, nil
		}
		next := pauses.Pause(failures)
		var e *serverError
		var l *lasting
		switch {
		case errors.As(err, &l):
			return nil, err
		case errors.As(err, &e):
			if e.status < 500 || e.status == http.StatusNotImplemented || e.status == http.StatusInsufficientStorage {
				return nil, err
			}
			next = min(max(next, e.wait), maxPause)
		}
		if time.Now().Add(next).After(until) || ctx.Err() != nil || !r.met.Load() && wrongAddress(err) {
			return nil, err
		}
		if err := wait.Sleep(ctx, next); err != nil {
			return nil, err
		}
	}
}

// wrongAddress reports whether err shows that no server listens at the address, or that the host does not exist.
func wrongAddress(err error) bool {
	var name *net.DNSError
	return errors.Is(err, syscall.ECONNREFUSED) || errors.As(err, &name) && name.IsNotFound
}

func (r *remote) once(ctx context.Context, u *url.URL, c *call) (io.ReadCloser, error) {
	req := &http.Request{
		Method: c.method, URL: u, Host: u.Host, Header: c.header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	if req.Header == nil {
		req.Header = http.Header{}
	}
	if len(c.body) > 0 {
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(c.body)), int64(len(c.body))
	}
	if r.keyID != "" {
		signed := &sigv4.Request{Method: c.method, Path: u.EscapedPath(), Query: u.RawQuery, Host: u.Host,
			Header: req.Header.Clone(), Length: int64(len(c.body))}
		if err := sigv4.Sign(signed, r.keyID, r.secret, r.region, sigv4.PayloadOf(c.body), time.Now()); err != nil {
			return nil, fmt.Errorf("sign the request: %w", err)
		}
		req.Header = signed.Header
	}
	answer, err := r.http.Do(req.WithContext(ctx))
	if err != nil {
		if op, ok := errors.AsType[*url.Error](err); ok {
			err = op.Err
		}
		if cause := reload.ClientError("--server", r.base, err); cause != nil {
			return nil, &lasting{cause}
		}
		return nil, fmt.Errorf("can't reach %s (is `listd serve` running?): %w", r.base, err)
	}
	r.met.Store(true)
	if answer.StatusCode < 300 {
		return answer.Body, nil
	}
	defer answer.Body.Close()
	e := &serverError{status: answer.StatusCode}
	document, _ := io.ReadAll(io.LimitReader(answer.Body, 64<<10))
	if r.base.Scheme == "http" && reload.AsksForTLS(e.status, document) {
		return nil, &lasting{reload.SpeaksTLS("--server", r.base)}
	}
	_ = xml.Unmarshal(document, e) // a proxy may send another document: then the status is enough
	if s, err := strconv.Atoi(answer.Header.Get("Retry-After")); err == nil && s > 0 {
		e.wait = time.Duration(min(s, 3600)) * time.Second
	}
	return nil, e
}

// createBucket asks the server to create a bucket: a bucket of objects or, if plain is true, a plain bucket, whose
// entries have small values. The parameter cuts is the content of a file with the keys at which the ranges of the new
// bucket begin, or nil for one range.
func (r *remote) createBucket(ctx context.Context, name string, plain bool, cuts []byte) error {
	c := &call{method: http.MethodPut, bucket: name}
	if plain {
		c.header = http.Header{"X-Evenkeel-Bucket-Kind": {"plain"}}
	}
	if cuts != nil {
		c.query, c.body = url.Values{"evenkeel-cuts": {""}}, cuts
	}
	_, err := r.do(ctx, c)
	return err
}
