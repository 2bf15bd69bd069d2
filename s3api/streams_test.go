package s3api

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// bodies is a store of bodies of zeros that a test looks into.
type bodies struct {
	objects.Blobs
	create func(ctx context.Context, body io.Reader) error
	opened func(ctx context.Context) error
	newest string
	size   int64 // of the newest
	closed int
}

func (b *bodies) Create(ctx context.Context, name string, body io.Reader, _ int64) error {
	b.newest = name
	if b.create != nil {
		return b.create(ctx, body)
	}
	n, err := io.Copy(io.Discard, body)
	b.size = n
	return err
}

func (b *bodies) Open(ctx context.Context, _ string, _, n int64) (io.ReadCloser, int64, error) {
	if b.opened != nil {
		if err := b.opened(ctx); err != nil {
			return nil, 0, err
		}
	}
	return &zeros{ctx, b, n}, b.size, nil
}

// List knows the newest one only.
func (b *bodies) List(_ context.Context, prefix, after string, each func(name string, size int64) error) error {
	if !strings.HasPrefix(b.newest, prefix) || b.newest <= after {
		return nil
	}
	return each(b.newest, b.size)
}

// zeros is a body that can't be read any more when its context has ended.
type zeros struct {
	ctx  context.Context
	of   *bodies
	left int64
}

func (z *zeros) Read(p []byte) (int, error) {
	if err := z.ctx.Err(); err != nil {
		return 0, err
	}
	if z.left == 0 {
		return 0, io.EOF
	}
	n := min(len(p), int(z.left))
	z.left -= int64(n)
	clear(p[:n])
	return n, nil
}

func (z *zeros) Close() error {
	z.of.closed++
	return nil
}

// overBodies makes a handler over a bucket of objects, abc, none of whose bodies is inline.
func overBodies(t *testing.T, b objects.Blobs, o Options) *Handler {
	s := memstore.New()
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	c, err := listing.New(s, listing.Options{})
	require.NoError(t, err)
	o.Objects, err = objects.New(c, b, objects.Options{InlineBytes: -1})
	require.NoError(t, err)
	require.NoError(t, o.Objects.CreateBucket(t.Context(), "abc"))
	o.SoleWriter = true
	h, err := New(Over(c), o)
	require.NoError(t, err)
	return h
}

// counted is a body that counts what was read of it.
type counted struct {
	io.Reader
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}

// putBytes puts an object of so many bytes; the length is told, or not.
func putBytes(h *Handler, w http.ResponseWriter, n int, told bool) *counted {
	body := &counted{Reader: strings.NewReader(strings.Repeat("x", n))}
	r := httptest.NewRequest("PUT", "/abc/k", body)
	r.ContentLength = int64(n)
	if !told {
		r.ContentLength = -1
	}
	h.ServeHTTP(w, r)
	return body
}

// TestSlotsOfBodies: a body of up to 64 KiB comes before the work, which has a slot. A larger one, or
// one of unknown length, takes none, and 64 KiB of memory.
func TestSlotsOfBodies(t *testing.T) {
	b := &bodies{}
	h := overBodies(t, b, Options{})
	for _, c := range []struct {
		n     int
		told  bool
		slots int
		small int64
	}{{1, true, 1, 1}, {65536, true, 1, 65536}, {65537, true, 0, 65536}, {1, false, 0, 65536}, {70000, false, 0, 65536}} {
		b.create = func(_ context.Context, body io.Reader) error {
			slots, small, large, _ := h.Held()
			require.Equal(t, []int64{int64(c.slots), c.small, 0}, []int64{int64(slots), small, large}, "%+v", c)
			_, err := io.Copy(io.Discard, body)
			return err
		}
		w := httptest.NewRecorder()
		putBytes(h, w, c.n, c.told)
		require.Equal(t, 200, w.Code)
		slots, small, large, askers := h.Held()
		require.Equal(t, []int64{0, 0, 0, 0}, []int64{int64(slots), small, large, int64(askers)})
	}
}

// deadlines notes the deadlines that are set, and where in the body.
type deadlines struct {
	*httptest.ResponseRecorder
	at            func() int64
	reads, writes []time.Duration // from now on
	where         []int64
}

func (d *deadlines) SetReadDeadline(t time.Time) error {
	d.reads, d.where = append(d.reads, time.Until(t)), append(d.where, d.at())
	return nil
}

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.writes, d.where = append(d.writes, time.Until(t)), append(d.where, int64(d.Body.Len()))
	return nil
}

// TestPaceOfLargeBodies: with a minimum rate each 256 KiB have their own time, on the way in and on the
// way out, and the server is not idle meanwhile.
func TestPaceOfLargeBodies(t *testing.T) {
	const kib = 1 << 10
	synctest.Test(t, func(t *testing.T) {
		var told []bool
		b := &bodies{}
		busy := func(_ context.Context, busy bool) { told = append(told, busy) }
		h := overBodies(t, b, Options{MinRate: 64 * kib, Busy: busy})
		b.create = func(_ context.Context, body io.Reader) (err error) {
			told = nil
			b.size, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{body}, make([]byte, 64*kib))
			return err
		}
		body := &counted{Reader: strings.NewReader(strings.Repeat("x", 600*kib))}
		w := &deadlines{ResponseRecorder: httptest.NewRecorder(), at: func() int64 { return body.n }}
		r := httptest.NewRequest("PUT", "/abc/k", body)
		r.ContentLength = 600 * kib
		h.ServeHTTP(w, r)
		require.Equal(t, 200, w.Code)
		each := slackTime + 4*time.Second
		require.Equal(t, []time.Duration{slackTime + 600*kib*time.Second/(64*kib), each, each, each}, w.reads)
		require.Equal(t, []int64{0, 0, 256*kib + 1, 512*kib + 1}, w.where, "the first byte is read alone")
		require.Equal(t, []bool{true, false, true, false}, told)

		told = nil
		w = &deadlines{ResponseRecorder: httptest.NewRecorder()}
		h.ServeHTTP(w, httptest.NewRequest("GET", "/abc/k", nil))
		require.Equal(t, 600*kib, w.Body.Len())
		require.Equal(t, []time.Duration{each, each, each}, w.writes)
		require.Equal(t, []int64{0, 256 * kib, 512 * kib}, w.where)
		require.Equal(t, []bool{true, false, true, false, true, false, true, false}, told)
		for n, want := range map[int64]int{4 * kib: 0, 4*kib + 1: 1} {
			w = &deadlines{ResponseRecorder: httptest.NewRecorder()}
			r := httptest.NewRequest("GET", "/abc/k", nil)
			r.Header.Set("Range", "bytes=-"+strconv.FormatInt(n, 10))
			h.ServeHTTP(w, r)
			require.Len(t, w.writes, want, n)
		}
	})
}

// TestTimeForLargeBodies: an hour for a transfer, and once the body has come that of other requests.
func TestTimeForLargeBodies(t *testing.T) {
	for name, c := range map[string]struct {
		reads int64
		want  time.Duration
	}{"a body that does not end": {100_000, time.Hour}, "a body that has come": {1 << 30, time.Minute}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &bodies{create: func(ctx context.Context, body io.Reader) error {
					_, _ = io.CopyN(io.Discard, body, c.reads)
					<-ctx.Done()
					return ctx.Err()
				}}
				h := overBodies(t, b, Options{RequestTimeout: time.Minute})
				begun := time.Now()
				w := httptest.NewRecorder()
				putBytes(h, w, 200_000, true)
				require.Equal(t, 503, w.Code)
				require.Equal(t, c.want, time.Since(begun))
			})
		})
	}
}

// slow takes ten minutes for each part of an answer, and looks.
type slow struct {
	*httptest.ResponseRecorder
	look func()
}

func (s *slow) Write(p []byte) (int, error) {
	time.Sleep(10 * time.Minute)
	s.look()
	return s.ResponseRecorder.Write(p)
}

// TestLargeBodiesThatAreReadSlowly: they come to their end, without a slot, and with 64 KiB of memory.
// Their context ends with them, and they are closed.
func TestLargeBodiesThatAreReadSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bodies{}
		h := overBodies(t, b, Options{})
		for n, small := range map[int]int64{4096: 0, 4097: 4097, 65536: 65536, 300_000: 65536} {
			putBytes(h, httptest.NewRecorder(), n, true)
			for _, header := range []string{"", "bytes=0-"} { // with one the version is looked at first
				var of context.Context
				b.opened = func(ctx context.Context) error { of = ctx; return nil }
				b.closed = 0
				w := &slow{httptest.NewRecorder(), func() {
					slots, got, large, askers := h.Held()
					require.Equal(t, []int64{0, small, 0, 1}, []int64{int64(slots), got, large, int64(askers)}, n)
				}}
				r := httptest.NewRequest("GET", "/abc/k", nil)
				r.Header.Set("Range", header)
				h.ServeHTTP(w, r)
				require.Equal(t, n, w.Body.Len())
				require.Equal(t, 1, b.closed)
				require.ErrorIs(t, of.Err(), context.Canceled)
			}
		}
		b.opened = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		begun := time.Now()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/abc/k", nil))
		require.Equal(t, 503, w.Code)
		require.Equal(t, 30*time.Second, time.Since(begun), "to open it is bounded")
	})
}

// waitingSettings waits for the end of each call for a bucket's settings, or answers at once that
// there are none.
type waitingSettings struct {
	*listing.Client
	waits bool
	of    context.Context
}

func (w *waitingSettings) Bucket(name string) Bucket {
	return bucketOfWaiting{w.Client.Bucket(name), w}
}

type bucketOfWaiting struct {
	Bucket
	of *waitingSettings
}

func (b bucketOfWaiting) Settings(ctx context.Context) ([]byte, error) {
	b.of.of = ctx
	if b.of.waits {
		<-ctx.Done()
	}
	return nil, ctx.Err()
}

// TestSettingsAreReadInTime: before and within the request's work, also for a client that has ended
// its sending side.
func TestSettingsAreReadInTime(t *testing.T) {
	for _, call := range []string{"GET /abc/k", "PUT /abc/k", "PUT /abc?versioning", "GET /abc?versions"} {
		synctest.Test(t, func(t *testing.T) {
			_, c := overBucket(t, Options{})
			b := &waitingSettings{Client: c, waits: true}
			h, err := New(b, Options{RequestTimeout: time.Minute, SoleWriter: true})
			require.NoError(t, err)
			left, leave := context.WithCancel(t.Context())
			if !strings.Contains(call, "versions") { // a listing's client is waited for a second
				leave()
			}
			defer leave()
			begun := time.Now()
			method, target, _ := strings.Cut(call, " ")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(method, target, nil).WithContext(left))
			require.Equal(t, 503, w.Code, call)
			require.Equal(t, time.Minute, time.Since(begun), call)
			b.waits = false
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(method, target, nil).WithContext(left))
			require.ErrorIs(t, b.of.Err(), context.Canceled, call)
		})
	}
}

// interrupted is a body in the middle of which something else happens.
type interrupted struct {
	rest  string
	other func()
}

func (i *interrupted) Read(p []byte) (int, error) {
	if len(i.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, i.rest)
	if i.rest = i.rest[n:]; i.other != nil {
		i.other()
		i.other = nil
	}
	return n, nil
}

// TestNobodyWaitsForTheBodyOfAConditionalPut: a condition holds before the body comes and once it has come, and nothing
// newer has come between. So what was acknowledged meanwhile is not hidden, nor does it hide what is acknowledged.
func TestNobodyWaitsForTheBodyOfAConditionalPut(t *testing.T) {
	const large = 100_000
	for _, c := range []struct{ condition, before, meanwhile, code, after string }{
		{"If-None-Match *", "", "", "", "large"},
		{"If-None-Match *", "v", "DELETE", "PreconditionFailed", ""}, // it is not read
		{"If-None-Match *", "", "PUT v", "PreconditionFailed", "v"},
		{"If-None-Match *", "", "PUT v, DELETE", "ConditionalRequestConflict", ""},
		{"If-Match *", "v", "", "", "large"},
		{"If-Match *", "v", "PUT w", "ConditionalRequestConflict", "w"},
		{"If-Match *", "v", "DELETE", "NoSuchKey", ""},
	} {
		t.Run(c.condition+" on "+c.before+", and meanwhile "+c.meanwhile, func(t *testing.T) {
			b := &bodies{}
			h := overBodies(t, b, Options{RequestTimeout: 2 * time.Second})
			h.o.Objects, _ = objects.New(h.buckets.(client).Client, b, objects.Options{})
			ask := func(method, body string) *httptest.ResponseRecorder {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest(method, "/abc/k", strings.NewReader(body)))
				return w
			}
			if c.before != "" {
				require.Equal(t, 200, ask("PUT", c.before).Code)
			}
			body := &interrupted{rest: strings.Repeat("x", large)}
			body.other = func() {
				for one := range strings.SplitSeq(c.meanwhile, ", ") {
					if method, text, _ := strings.Cut(one, " "); method != "" {
						require.Less(t, ask(method, text).Code, 300, "it does not wait")
					}
				}
			}
			r := httptest.NewRequest("PUT", "/abc/k", body)
			r.ContentLength = large
			name, value, _ := strings.Cut(c.condition, " ")
			r.Header.Set(name, value)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if c.code != "" {
				require.Contains(t, w.Body.String(), "<Code>"+c.code+"</Code>")
			} else {
				require.Equal(t, 200, w.Code, w.Body)
			}
			switch got := ask("GET", ""); c.after {
			case "":
				require.Equal(t, c.before != "" && c.meanwhile == "DELETE" && body.other != nil, got.Code == 200)
			case "large":
				require.Equal(t, large, got.Body.Len())
			default:
				require.Equal(t, c.after, got.Body.String())
			}
			require.Zero(t, h.KeyLocks())
		})
	}
}

// TestConditionsOfOldUploads: an upload counts from its completion. What has come since its creation does not hide it.
func TestConditionsOfOldUploads(t *testing.T) {
	b := &bodies{}
	h := overBodies(t, b, Options{})
	h.o.Objects, _ = objects.New(h.buckets.(client).Client, b, objects.Options{}) // puts are inline: b knows one body
	ask := func(method, uri, body string, header ...string) *httptest.ResponseRecorder {
		w, r := httptest.NewRecorder(), httptest.NewRequest(method, uri, strings.NewReader(body))
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		h.ServeHTTP(w, r)
		return w
	}
	for _, c := range []struct {
		condition, since string
		status           int
	}{
		{"If-None-Match", "DELETE", 200}, {"If-Match", "PUT", 200}, {"If-None-Match", "PUT", 412}, {"If-None-Match", "", 200},
		{"If-Match", "", 200},
	} {
		doc := ask("POST", "/abc/k?uploads", "").Body.String()
		_, id, _ := strings.Cut(doc, "<UploadId>")
		id, _, _ = strings.Cut(id, "<")
		up := "/abc/k?uploadId=" + id
		part := ask("PUT", up+"&partNumber=1", "x").Header().Get("ETag")
		require.NotEmpty(t, part)
		if c.since != "" {
			require.Less(t, ask(c.since, "/abc/k", "y").Code, 300)
		}
		w := ask("POST", up, "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>"+part+
			"</ETag></Part></CompleteMultipartUpload>", c.condition, "*")
		require.Equal(t, c.status, w.Code, "%v: %s", c, w.Body)
		if c.status == 200 {
			require.Contains(t, ask("GET", "/abc/k", "").Header().Get("ETag"), "-1", "it is the upload's")
		}
		if c.since == "PUT" || c.condition == "If-None-Match" && c.since == "DELETE" {
			require.Equal(t, 204, ask("DELETE", "/abc/k", "").Code)
		}
	}
}

// TestABodyThatIsLost says so, and where to look; all else goes on.
func TestABodyThatIsLost(t *testing.T) {
	b := &bodies{opened: func(context.Context) error { return store.Errorf(store.NotFound, "no such blob") }}
	h := overBodies(t, b, Options{})
	putBytes(h, httptest.NewRecorder(), 100_000, true)
	get := func(method, uri string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, uri, http.NoBody))
		return w
	}
	w := get("GET", "/abc/k")
	require.Equal(t, 500, w.Code)
	require.Contains(t, w.Body.String(), "the body of the version is lost")
	require.Contains(t, w.Body.String(), "`rebalancer audit` says which bodies are lost")
	require.Equal(t, 200, get("HEAD", "/abc/k").Code)
	require.Contains(t, get("GET", "/abc?list-type=2").Body.String(), "<Key>k</Key>")
	require.Equal(t, 204, get("DELETE", "/abc/k").Code)
}
