package adopt

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/store"
)

// S3 describes a bucket of another object store as a source of rows: its address and access keys, which of its objects
// are copied, and what of each object.
type S3 struct {
	// Endpoint is the address of the store, as http://HOST:PORT or https://HOST:PORT. Bucket is the name of the bucket.
	Endpoint, Bucket string
	// Prefix selects the objects that are copied: those whose keys begin with Prefix.
	Prefix string
	// Region is the region of the bucket. If it is empty, the environment variable AWS_REGION has the region, or the
	// server is asked.
	Region string
	// AccessKey and SecretKey sign the requests. If they are empty, the keys in the environment or in the files of AWS
	// are used; without any keys the requests are not signed.
	AccessKey, SecretKey string
	// Metadata is true if the user metadata and the content type of objects are copied, too. That takes one request for
	// each object.
	Metadata bool
}

// object describes an object of another object store. Its JSON form becomes the value of an entry in the bucket, under
// the object's key. The body of the object is not copied.
type object struct {
	Size int64 `json:"size"`
	// ETag is the object's ETag without quotation marks.
	ETag     string    `json:"etag"`
	Modified time.Time `json:"modified"`
	// StorageClass is empty if the server names no storage class.
	StorageClass string `json:"storage_class,omitempty"`
	// ContentType and Metadata are set only if S3.Metadata is true. The names of Metadata are in lower case.
	ContentType string            `json:"content_type,omitempty"`
	Metadata    map[string]string `json:"metadata,omitempty"`
}

// LongKey is the reason why an object is not copied if its key is too long for any request of S3.
const LongKey Refusal = "its key has more than the 1,024 bytes of S3"

const (
	longestS3Key = 1024
	// s3Page is the largest number of keys in one answer to a request for a listing.
	s3Page = 1000
	// answerTime bounds the time for a page of rows: a listing with the metadata of its objects.
	answerTime = 2 * time.Minute
	// emptyPages is the largest number of answers in a row that have no key and say that more keys follow. If there are
	// more, the listing fails.
	emptyPages = 100
	// s3Heads is the number of requests for metadata that run at the same time.
	s3Heads = 64
	// s3Attempts is the number of times that the S3 client sends a request. If all fail, the whole page of rows is
	// requested again.
	s3Attempts = 3
)

// objectsOf is the listing of a bucket of another object store, as a Source whose rows describe the objects.
type objectsOf struct {
	c     *minio.Client
	at    S3
	heads chan struct{}
}

// FromS3 returns a source whose rows describe the objects of a bucket of another object store. The source has one part.
// FromS3 sends no request; it only reads credentials. It fails if the endpoint is not a valid address.
func FromS3(at S3) (Source, error) {
	u, err := url.Parse(at.Endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil ||
		strings.Trim(u.Path, "/")+u.RawQuery+u.Fragment != "" {
		return nil, store.Errorf(store.InvalidArgument, "the endpoint is http://HOST:PORT or https://HOST:PORT")
	}
	keys := credentials.NewStaticV4(at.AccessKey, at.SecretKey, "")
	if at.AccessKey == "" {
		keys = credentials.NewChainCredentials([]credentials.Provider{
			&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}, // and if there are none: not signed
		})
	}
	c, err := minio.New(u.Host, &minio.Options{
		Creds: keys, Secure: u.Scheme == "https", MaxRetries: s3Attempts,
		Region: cmp.Or(at.Region, os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION")),
		Transport: listings{&http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
			TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: time.Minute,
			MaxIdleConnsPerHost: 2 * s3Heads, IdleConnTimeout: time.Minute,
		}},
	})
	if err != nil {
		return nil, store.Errorf(store.InvalidArgument, "the endpoint: %w", err)
	}
	return &objectsOf{c: c, at: at, heads: make(chan struct{}, s3Heads)}, nil
}

// listings is an HTTP transport that refuses two kinds of wrong answers to requests for a listing:
//   - a page that is no S3 listing, e.g. a web page, which the S3 client would take for an empty listing, and
//   - many answers in a row (emptyPages) that have no key and say that more keys follow, so that the listing never
//     ends.
type listings struct{ next http.RoundTripper }

type emptyAnswers struct{} // the key of the counter of answers in a context

func (l listings) RoundTrip(r *http.Request) (*http.Response, error) {
	n, isListing := r.Context().Value(emptyAnswers{}).(*int)
	if isListing {
		if *n++; *n > emptyPages*s3Attempts {
			return nil, store.Errorf(store.Corrupt, "the listing does not end: %d answers in a row have no key, and say that "+
				"there are more", emptyPages)
		}
	}
	resp, err := l.next.RoundTrip(r)
	if err != nil || !isListing || resp.StatusCode != http.StatusOK || !r.URL.Query().Has("list-type") {
		return resp, err
	}
	// Other XML, like that of a web page, would look like a listing without keys. A catch-up would then delete
	// everything.
	body := bufio.NewReader(resp.Body)
	if start, _ := body.Peek(1024); !bytes.Contains(start, []byte("<ListBucketResult")) {
		return nil, errors.Join(store.Errorf(store.Unavailable, "the answer is no listing of S3: is the endpoint right?"),
			resp.Body.Close())
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{body, resp.Body}
	return resp, nil
}

// Parts returns 1, since the listing is one sorted stream.
func (s *objectsOf) Parts() int { return 1 }

// Same reports whether two values, which are JSON descriptions of objects, are equal byte for byte.
func (s *objectsOf) Same(a, b []byte) bool { return bytes.Equal(a, b) }

// Page returns at most limit rows for the objects in the given interval of keys, as Source says. Any page can be read
// at any time, in any order.
func (s *objectsOf) Page(ctx context.Context, _ int, span Span, limit int, values bool) (rows []Row, err error) {
	// Objects after a key are requested, never with a continuation token of an earlier answer.
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if span.From != nil && !span.After { // a listing begins after a key, so the first key is read by itself
		first, found, err := s.get(ctx, string(span.From), values)
		if err != nil {
			return nil, err
		}
		if found && (span.To == nil || bytes.Compare(span.From, span.To) < 0) {
			rows = append(rows, first)
		}
	}
	for after, more := string(span.From), true; more && len(rows) < limit; {
		var listed []minio.ObjectInfo
		listed, more, err = s.list(ctx, s.at.Prefix, after, string(span.To), limit-len(rows))
		if err != nil {
			return nil, err
		}
		if len(listed) > 0 {
			after = listed[len(listed)-1].Key
		}
		got, err := s.rows(ctx, listed, values)
		if err != nil {
			return nil, err
		}
		rows = append(rows, got...) // fewer rows, if objects have gone meanwhile
	}
	return rows, nil
}

// list returns at most limit objects whose keys begin with prefix, are greater than after, and are less than `to`. An
// empty `to` is no bound. The result `more` is true if there may be more objects.
func (s *objectsOf) list(
	ctx context.Context, prefix, after, to string, limit int,
) (listed []minio.ObjectInfo, more bool, err error) {
	var requests int
	ctx = context.WithValue(ctx, emptyAnswers{}, &requests)
	no, last := false, after
	for o := range s.c.ListObjectsIter(ctx, s.at.Bucket, minio.ListObjectsOptions{
		Prefix: prefix, StartAfter: after, Recursive: true, MaxKeys: min(limit, s3Page), FetchOwner: &no,
	}) {
		switch requests = 0; {
		case o.Err != nil:
			return nil, false, s.fault(o.Err)
		case o.Key <= last:
			return nil, false, store.Errorf(store.Corrupt, "the server lists %.64q after %.64q: it can be adopted only if its "+
				"listing has each key once, in bytewise order, from start-after on", o.Key, last)
		case !strings.HasPrefix(o.Key, prefix):
			return nil, false, store.Errorf(store.Corrupt, "the server lists %.64q, which does not begin with %.64q", o.Key,
				prefix)
		case to != "" && o.Key >= to:
			return listed, false, nil
		}
		last = o.Key
		if listed = append(listed, o); len(listed) == limit {
			return listed, true, nil
		}
	}
	return listed, false, s.fault(context.Cause(ctx)) // the listing does not report the end of the context
}

// rows returns a row for each of the listed objects. If values and S3.Metadata are true, it requests the metadata of
// each object, and leaves out objects that were deleted since they were listed.
func (s *objectsOf) rows(ctx context.Context, listed []minio.ObjectInfo, values bool) ([]Row, error) {
	rows, gone := make([]Row, len(listed)), make([]bool, len(listed))
	g, ctx := errgroup.WithContext(ctx)
	for i := range listed {
		if !values || !s.at.Metadata || len(listed[i].Key) > longestS3Key {
			rows[i] = s.row(&listed[i], values)
			continue
		}
		s.heads <- struct{}{}
		g.Go(func() (err error) {
			defer func() { <-s.heads }()
			var there bool
			rows[i], there, err = s.described(ctx, listed[i])
			gone[i] = !there
			return err
		})
	}
	err := g.Wait()
	kept := rows[:0]
	for i := range rows {
		if !gone[i] {
			kept = append(kept, rows[i])
		}
	}
	return kept, err
}

// described returns the row of the listed object o, together with the object's metadata, which it requests. The other
// fields come from the listing, whose times are more precise. If the object was replaced since, it is listed again. The
// bool is false if the object was deleted since.
func (s *objectsOf) described(ctx context.Context, o minio.ObjectInfo) (Row, bool, error) {
	const tries = 5
	for range tries {
		info, err := s.c.StatObject(ctx, s.at.Bucket, o.Key, minio.StatObjectOptions{})
		switch {
		case err != nil && minio.ToErrorResponse(err).StatusCode == http.StatusNotFound:
			return Row{}, false, nil
		case err != nil:
			return Row{}, false, s.fault(err)
		case info.ETag == o.ETag && info.LastModified.Unix() == o.LastModified.Unix():
			o.UserMetadata, o.ContentType = info.UserMetadata, info.ContentType
			return s.row(&o, true), true, nil
		}
		listed, _, err := s.list(ctx, o.Key, "", "", 1)
		if err != nil || len(listed) == 0 || listed[0].Key != o.Key {
			return Row{}, false, err
		}
		o = listed[0]
	}
	return Row{}, false, store.Errorf(store.Unavailable, "the metadata of %.64q are not those of its listing: it changes "+
		"all the time", o.Key)
}

func (s *objectsOf) row(o *minio.ObjectInfo, values bool) Row {
	row := Row{Key: []byte(o.Key)}
	if !values {
		return row
	}
	value := object{
		Size: o.Size, ETag: o.ETag, Modified: o.LastModified.UTC(), StorageClass: o.StorageClass, ContentType: o.ContentType,
	}
	for name, text := range o.UserMetadata {
		if value.Metadata == nil {
			value.Metadata = map[string]string{}
		}
		value.Metadata[strings.ToLower(name)] = text
	}
	row.Value, _ = json.Marshal(value) // none of the types fails
	row.Time = store.Timestamp(o.LastModified.UnixMicro())
	switch {
	case len(o.Key) > longestS3Key:
		row.Refused = LongKey
	case storekit.CheckKey(row.Key) != nil:
		row.Refused = BadKey
	case len(row.Value) > store.MaxValueBytes:
		row.Refused = BadValue
	}
	return row
}

// Get returns the row for the object with the given key, as Source says.
func (s *objectsOf) Get(ctx context.Context, _ int, key []byte) (Row, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	return s.get(ctx, string(key), true)
}

// get returns the row for the object with the given key, the same row as in a listing. The bool is false if there is no
// such object.
func (s *objectsOf) get(ctx context.Context, key string, values bool) (Row, bool, error) {
	// The keys that begin with this key are listed: the first of them is the key itself, if it exists.
	if key == "" || len(key) > longestS3Key || !utf8.ValidString(key) || !strings.HasPrefix(key, s.at.Prefix) {
		return Row{}, false, nil
	}
	listed, _, err := s.list(ctx, key, "", "", 1)
	if err != nil || len(listed) == 0 || listed[0].Key != key {
		return Row{}, false, err
	}
	rows, err := s.rows(ctx, listed, values)
	if err != nil || len(rows) == 0 {
		return Row{}, false, err
	}
	return rows[0], true, nil
}

// fault turns an error of the other object store into an error with a kind:
//   - InvalidArgument if the same request would fail again; the text then has a hint for the user,
//   - Unavailable or Timeout if the error may pass.
func (s *objectsOf) fault(err error) error {
	switch {
	case err == nil || errors.Is(err, store.KindOf(err)):
		return err
	case store.KindOf(err) == store.Timeout:
		return store.Wrap("the other store", err)
	}
	answer := minio.ToErrorResponse(err)
	hint := ""
	switch code := answer.Code; {
	case code == "NoSuchBucket" || answer.StatusCode == http.StatusNotFound:
		hint = "there is no such bucket at this endpoint"
	case code == "AuthorizationHeaderMalformed" || code == "PermanentRedirect" || code == "InvalidRegion" ||
		code == "IllegalLocationConstraintException" || answer.StatusCode == http.StatusMovedPermanently:
		hint = "give its region by --region"
		if answer.Region != "" {
			hint = "give its region by --region " + answer.Region
		}
	case code == "RequestTimeTooSkewed":
		hint = "the clock of this machine, or of the server, is wrong"
	case answer.StatusCode == http.StatusForbidden || answer.StatusCode == http.StatusUnauthorized:
		hint = "the access key is wrong, or may not list this bucket"
		if s.at.Metadata {
			hint += " or read its objects, which --metadata needs"
		}
	case answer.StatusCode >= 400 && answer.StatusCode < 500 && answer.StatusCode != http.StatusTooManyRequests &&
		answer.StatusCode != http.StatusRequestTimeout:
		hint = "the server does not take the request"
	default:
		if answer.StatusCode > 0 {
			err = fmt.Errorf("%s: %w (%d)", answer.Code, err, answer.StatusCode)
		}
		return store.Errorf(store.Unavailable, "bucket %s of %s: %w", s.at.Bucket, s.at.Endpoint, err)
	}
	return store.Errorf(store.InvalidArgument, "bucket %s of %s: %s: %s: %w (%d)", s.at.Bucket, s.at.Endpoint, hint,
		answer.Code, err, answer.StatusCode)
}
