package s3api_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/faultstore"
	"github.com/evenkeel/evenkeel/internal/test/faulttest"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/s3api"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// brokenBlobs keep bodies in memory, and fail in one call; 0: in none.
type brokenBlobs struct {
	objects.Blobs
	m            map[string][]byte
	calls, fails int
	open         int // bodies that were not closed
}

// closes notes that a body is closed.
type closes struct {
	io.Reader
	open *int
}

func (c *closes) Close() error {
	*c.open--
	return nil
}

func (b *brokenBlobs) broken() error {
	if b.calls++; b.calls == b.fails {
		return store.Errorf(store.Unavailable, "injected into the bodies")
	}
	return nil
}

func (b *brokenBlobs) Create(_ context.Context, name string, body io.Reader, _ int64) (err error) {
	if b.m[name], err = io.ReadAll(body); err != nil {
		return err
	}
	return b.broken()
}

// Open fails at once, or where the body should end.
func (b *brokenBlobs) Open(_ context.Context, name string, offset, n int64) (io.ReadCloser, int64, error) {
	if err := b.broken(); err != nil {
		return nil, 0, err
	}
	body := b.m[name]
	r := io.Reader(bytes.NewReader(body[offset : offset+n]))
	if err := b.broken(); err != nil {
		r = io.MultiReader(io.LimitReader(r, n-1), iotest.ErrReader(err))
	}
	b.open++
	return &closes{r, &b.open}, int64(len(body)), nil
}

func (b *brokenBlobs) Delete(_ context.Context, name string) error {
	delete(b.m, name)
	return nil
}

func (b *brokenBlobs) List(_ context.Context, prefix, after string, each func(name string, size int64) error) error {
	if err := b.broken(); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(b.m)) {
		if !strings.HasPrefix(name, prefix) || name <= after {
			continue
		}
		if err := each(name, int64(len(b.m[name]))); err != nil {
			return err
		}
	}
	return nil
}

// eachObjectRequest are requests of buckets of objects, on what stockObjects makes, by the status of
// their answers.
func eachObjectRequest() map[int][]wanted {
	part := func(tag string) string {
		return "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>" + tag +
			"</ETag></Part></CompleteMultipartUpload>"
	}
	all := map[int][]wanted{}
	add := func(status int, call, body string, headers ...string) {
		all[status] = append(all[status], wanted{call, body, headers})
	}
	status := func(name string) string {
		return "<VersioningConfiguration><Status>" + name + "</Status></VersioningConfiguration>"
	}
	for _, b := range []string{"kept", "never"} {
		add(200, "PUT /"+b+"/new", "body")
		add(200, "PUT /"+b+"/a", "body", "If-Match", "*")
		add(412, "PUT /"+b+"/a", "body", "If-None-Match", "*")
		add(200, "GET /"+b+"/a", "")
		add(206, "GET /"+b+"/a", "", "Range", "bytes=1-2")
		add(200, "HEAD /"+b+"/a", "")
		add(404, "GET /"+b+"/gone", "")
		add(404, "HEAD /"+b+"/gone", "")
		add(404, "GET /"+b+"/none", "")
		add(404, "GET /"+b+"/gone?partNumber=1", "")
		add(200, "GET /"+b+"/a?versionId=null", "")
		add(204, "DELETE /"+b+"/a", "")
		add(204, "DELETE /"+b+"/a?versionId=null", "")
		add(200, "GET /"+b, "")
		add(200, "GET /"+b+"?list-type=2&max-keys=1", "")
		add(200, "GET /"+b+"?list-type=2&max-keys=0", "")
		add(200, "GET /"+b+"?versions&max-keys=3", "")
		add(200, "GET /"+b+"?versioning", "")
		add(200, "PUT /"+b+"?versioning", status("Suspended"))
		add(200, "HEAD /"+b, "")
		add(409, "DELETE /"+b, "")
		add(200, "PUT /"+b+"/copy", "", "x-amz-copy-source", "/"+b+"/a")
		add(200, "PUT /"+b+"/copy", "", "x-amz-copy-source", "/plain/a")
		add(200, "PUT /plain/copy", "", "x-amz-copy-source", "/"+b+"/a")
		add(404, "PUT /"+b+"/copy", "", "x-amz-copy-source", "/"+b+"/gone")
		// Of two keys: they are deleted at once, and those of one key would be in any order.
		const both = "<Delete><Object><Key>a</Key></Object>" +
			"<Object><Key>gone</Key><VersionId>null</VersionId></Object></Delete>"
		add(200, "POST /"+b+"?delete", both, "Content-MD5", md5Of(both))
	}
	add(204, "DELETE /hollow", "")
	add(200, "PUT /fresh", "")
	add(200, "GET /kept/a?versionId={v1}", "")
	add(206, "GET /kept/a?versionId={v1}&partNumber=1", "")
	add(404, "GET /kept/a?versionId={v3}", "")
	add(405, "GET /kept/gone?versionId={marker}", "")
	add(204, "DELETE /kept/gone?versionId={marker}", "")
	add(204, "DELETE /kept/a?versionId={v1}", "")
	add(200, "GET /kept?versions&key-marker=a&version-id-marker=null", "")
	add(200, "PUT /kept/copy", "", "x-amz-copy-source", "/kept/a?versionId={v1}")
	add(400, "PUT /kept/copy", "", "x-amz-copy-source", "/kept/gone?versionId={marker}")
	add(404, "PUT /kept/copy", "", "x-amz-copy-source", "/kept/a?versionId={v3}")
	add(200, "POST /kept/up?uploads", "")
	add(200, "PUT /kept/up?uploadId={up}&partNumber=2", "more")
	add(200, "PUT /kept/up?uploadId={up}&partNumber=2", "", "x-amz-copy-source", "/kept/a")
	add(200, "PUT /kept/up?uploadId={up}&partNumber=2", "", "x-amz-copy-source", "/kept/a",
		"x-amz-copy-source-range", "bytes=1-2")
	add(200, "GET /kept/up?uploadId={up}", "")
	add(200, "GET /kept?uploads", "")
	add(200, "POST /kept/up?uploadId={up}", part("{tag}"))
	add(206, "GET /kept/a?partNumber=1", "")
	add(200, "HEAD /kept/a?versionId={v1}", "")
	add(200, "GET /kept/a?versionId={v1}&acl", "")
	add(200, "PUT /kept/a?acl", "", "x-amz-acl", "private")
	add(200, "GET /kept/a?attributes", "", "x-amz-object-attributes", "ETag,ObjectParts")
	add(200, "GET /kept/whole?attributes", "", "x-amz-object-attributes", "ETag,ObjectParts")
	add(206, "GET /kept/whole?partNumber=1", "")
	add(206, "HEAD /kept/whole?partNumber=1", "")
	add(200, "PUT /kept/copy", "", "x-amz-copy-source", "/kept/whole")
	add(200, "GET /kept/a?tagging", "")
	add(200, "PUT /kept/a?tagging&versionId=null", tagging("a", "1"))
	add(204, "DELETE /kept/a?tagging", "")
	add(200, "PUT /kept?lifecycle", lifecycle(rule("1", inDays)))
	add(404, "GET /kept?lifecycle", "")
	add(204, "DELETE /kept?lifecycle", "")
	add(204, "DELETE /plain?lifecycle", "")
	add(200, "PUT /kept?cors", corsOf(corsRule("*", "GET", "")))
	add(404, "GET /kept?cors", "")
	add(204, "DELETE /kept?cors", "")
	add(204, "DELETE /plain?cors", "")
	add(403, "OPTIONS /kept/a", "", "Origin", "https://a.example", "Access-Control-Request-Method", "GET")
	add(200, "GET /kept/a?tagging", "", "Origin", "https://a.example")
	add(200, "GET /kept?location", "")
	add(200, "GET /kept?acl", "")
	add(206, "GET /kept/a?versionId={v1}", "", "Range", "bytes=1-2")
	add(200, "GET /kept/a?versionId={v2}", "", "If-Match", "*")
	add(204, "DELETE /kept/up?uploadId={up}", "")
	add(404, "DELETE /kept/up?uploadId={none}", "")
	return all
}

// stockObjects fills buckets of objects: kept, with versions; never, without; hollow, without an
// object; and a plain one. It returns what stands for ids in requests.
func stockObjects(t *testing.T, s store.Store, blobs objects.Blobs) *strings.Replacer {
	c, err := listing.New(s, listing.Options{})
	require.NoError(t, err)
	o, err := objects.New(c, blobs, objects.Options{InlineBytes: -1})
	require.NoError(t, err)
	ctx := t.Context()
	put := func(bucket string, v objects.Status, key, body string) string {
		i, err := o.Bucket(bucket, v).Put(ctx, []byte(key), strings.NewReader(body), objects.Meta{Size: int64(len(body))})
		require.NoError(t, err)
		return i.ID.String()
	}
	remove := func(bucket string, v objects.Status, key string) string {
		i, err := o.Bucket(bucket, v).Delete(ctx, []byte(key))
		require.NoError(t, err)
		return i.ID.String()
	}
	for _, b := range []string{"kept", "never", "hollow"} {
		require.NoError(t, o.CreateBucket(ctx, b))
		put(b, objects.Never, "gone", "before")
		remove(b, objects.Never, "gone")
	}
	put("never", objects.Never, "a", "body of a")
	require.NoError(t, o.SetStatus(ctx, "kept", objects.Enabled))
	v1 := put("kept", objects.Enabled, "a", "first of a")
	put("kept", objects.Never, "a", "null of a")
	v2 := put("kept", objects.Enabled, "a", "second of a")
	marker, v3 := remove("kept", objects.Enabled, "gone"), put("kept", objects.Enabled, "gone", "a moment")
	id, err := objects.ParseID(v3)
	require.NoError(t, err)
	kept := o.Bucket("kept", objects.Enabled)
	_, err = kept.DeleteVersion(ctx, []byte("gone"), id)
	require.NoError(t, err)
	u, err := kept.CreateUpload(ctx, []byte("up"), objects.Meta{Size: -1})
	require.NoError(t, err)
	p, err := kept.PutPart(ctx, []byte("up"), u.ID, 1, strings.NewReader("a part"), objects.Meta{Size: -1})
	require.NoError(t, err)
	whole, err := kept.CreateUpload(ctx, []byte("whole"), objects.Meta{Size: -1})
	require.NoError(t, err)
	only, err := kept.PutPart(ctx, []byte("whole"), whole.ID, 1, strings.NewReader("a part"), objects.Meta{Size: -1})
	require.NoError(t, err)
	_, err = kept.Complete(ctx, []byte("whole"), whole.ID, []objects.Part{{Number: 1, ETag: only.ETag}},
		func(objects.Upload, []objects.Part) ([]objects.Pair, error) { return nil, nil })
	require.NoError(t, err)
	none, err := kept.CreateUpload(ctx, []byte("other"), objects.Meta{Size: -1})
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(ctx, "plain"))
	plain := s3api.Object{Modified: time.Now(), Body: []byte("plain a")}
	require.NoError(t, c.Bucket("plain").Put(ctx, []byte("a"), plain.AppendRecord(nil)))
	return strings.NewReplacer("{v1}", v1, "{v2}", v2, "{v3}", v3, "{marker}", marker, "{up}", u.ID.String(),
		"{none}", none.ID.String(), "{tag}", p.ETag)
}

// idsAndTimes are what differs in the answers to one request that is sent twice.
var idsAndTimes = regexp.MustCompile(
	`\b[0-9a-f]{28}\b|\d{4}-\d\d-\d\dT[\d:.]*Z|Last-Modified\[[^]]*]|(?:<NextContinuationToken>)[^<]*`)

// TestEachCallOfObjectsFails: as TestEachCallFails, for buckets of objects, where the store, or that
// of the bodies, refuses one call. Bodies break off, too: such an answer never ends well. How many calls a
// request costs is in testdata/calls.txt: if that changes on purpose, run go test ./s3api -run
// EachCallOfObjectsFails -update.
func TestEachCallOfObjectsFails(t *testing.T) {
	refused := faulttest.Way{
		Fault: faultstore.Fault{Ending: faultstore.Refused, Kind: store.TooMuchDeadData}, Times: 1,
	}
	var costs []string // how often each request calls the store, and that of the bodies
	for status, requests := range eachObjectRequest() {
		for _, w := range requests {
			t.Run(w.call, func(t *testing.T) {
				// attempt answers the request where a call fails, and what there is then.
				attempt := func(fail faulttest.Case, body int) (
					code int, text, after string, calls map[faultstore.Op]int, bodies int,
				) {
					synctest.Test(t, func(t *testing.T) {
						inner := memstore.New()
						s, faults := fail.Store(inner)
						defer func() { require.NoError(t, s.Close()) }()
						b := &brokenBlobs{m: map[string][]byte{}}
						ids := stockObjects(t, inner, b)
						ask := w
						ask.call, ask.body, ask.headers = ids.Replace(w.call), ids.Replace(w.body), nil
						for _, h := range w.headers {
							ask.headers = append(ask.headers, ids.Replace(h))
						}
						over := func(s store.Store) http.Handler {
							c, err := listing.New(s, listing.Options{})
							require.NoError(t, err)
							o, err := objects.New(c, b, objects.Options{InlineBytes: -1})
							require.NoError(t, err)
							h, err := s3api.New(s3api.Over(c), s3api.Options{SoleWriter: true, Objects: o})
							require.NoError(t, err)
							return h
						}
						b.calls, b.fails = 0, body
						h := over(s)
						faults.Enable(true)
						func() {
							defer func() {
								if p := recover(); p != nil {
									require.Equal(t, http.ErrAbortHandler, p)
									code = 0 // the client sees an answer that breaks off
								}
							}()
							code, text = ask.send(t.Context(), h)
						}()
						faults.Enable(false)
						require.Zero(t, b.open, "bodies that were not closed")
						calls, bodies = faulttest.Calls(faults), b.calls
						h = over(inner)
						for _, q := range []string{
							"/", "/kept?versions", "/never?versions", "/hollow?versions", "/kept?versioning", "/never?versioning",
							"/plain",
							"/kept/copy", "/kept/new", "/plain/copy", "/kept?uploads", "/kept/up?uploadId={up}",
						} {
							if strings.HasPrefix(w.call, "POST /kept/up?uploadId") && strings.Contains(q, "upload") {
								continue // an upload that has been completed may stay until a cleaner finds it
							}
							look := wanted{call: "GET " + ids.Replace(q)}
							_, shown := look.send(t.Context(), h)
							after += shown
						}
					})
					return code, idsAndTimes.ReplaceAllString(text, ""), idsAndTimes.ReplaceAllString(after, ""), calls, bodies
				}
				code, want, then, calls, bodies := attempt(faulttest.Case{}, 0)
				require.Equal(t, status, code, want)
				cost := fmt.Sprintf("%s %q:", w.call, w.headers)
				for op := range faultstore.Op(len(calls)) {
					if n := calls[op]; n > 0 {
						cost += fmt.Sprintf(" %d %v", n, op)
					}
				}
				costs = append(costs, fmt.Sprintf("%s, %d of bodies\n", cost, bodies))
				checked := []int{0, status, http.StatusServiceUnavailable} // 0: it broke off
				var sample faulttest.Sample
				check := func(fail faulttest.Case, body int) {
					if sample.Skips() {
						return
					}
					code, got, after, _, _ := attempt(fail, body)
					require.Contains(t, checked, code, got)
					if code != 0 && code < 500 {
						require.Equal(t, want, got, "call %d of %v, or %d of bodies", fail.Nth, fail.Op, body)
						require.Equal(t, then, after, "call %d of %v, or %d of bodies", fail.Nth, fail.Op, body)
					}
					require.NotContains(t, got, "injected", "what failed is for the log")
				}
				for op, n := range calls {
					for nth := 1; nth <= n; nth++ {
						check(faulttest.Case{Op: op, Nth: nth, Way: &refused}, 0)
					}
				}
				for nth := 1; nth <= bodies; nth++ {
					check(faulttest.Case{}, nth)
				}
			})
		}
	}
	slices.Sort(costs)
	same(t, "testdata/calls.txt", strings.Join(costs, ""))
}
