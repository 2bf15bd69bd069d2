package s3api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
)

// versioned is a bucket of objects, with versions and bodies of any size.
type versioned struct {
	*objects.Bucket
	status objects.Status
	rules  objects.Lifecycle
}

// objectsOf returns a bucket of objects; nil: it has plain entries.
func (h *Handler) objectsOf(ctx context.Context, bucket string) (*versioned, error) {
	if _, bounded := ctx.Deadline(); !bounded { // the request's work has not begun
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), h.o.RequestTimeout)
		defer cancel()
	}
	settings, err := h.buckets.Bucket(bucket).Settings(ctx)
	if err != nil || len(settings) == 0 {
		return nil, err
	}
	if h.o.Objects == nil {
		return nil, notImplemented("buckets of objects")
	}
	// The whole request is about the bucket that has the name now, whatever its body waits for.
	b, s, err := h.o.Objects.Open(ctx, bucket)
	if err != nil {
		return nil, err
	}
	return &versioned{b, s.Status, s.Lifecycle}, nil
}

// configuration receives the document of a request that changes a setting of buckets of objects.
func (h *Handler) configuration(x *exchange) ([]byte, error) {
	in, err := h.objectsOf(x.ctx(), x.bucket)
	if err != nil {
		return nil, err
	}
	if in == nil {
		return nil, notImplemented(x.op.name + " of a bucket for plain entries: make one with " +
			headerKind + ": " + kindObjects)
	}
	doc, refusal := h.receive(x, maxConfigurationBytes, asDocument)
	if refusal != nil {
		return nil, refusal
	}
	return doc, nil
}

const (
	headerVersion = "X-Amz-Version-Id"
	headerMarker  = "X-Amz-Delete-Marker"
)

// versionText is how clients name a version.
func versionText(i *objects.Info) string {
	if i.Null {
		return nullVersion
	}
	return i.ID.String()
}

// tell sets the headers that name a version. Where versions were never kept there are none.
func (v *versioned) tell(x *exchange, i *objects.Info) {
	if v.status == objects.Never {
		return
	}
	x.w.Header().Set(headerVersion, versionText(i))
	if i.Marker {
		x.w.Header().Set(headerMarker, "true")
	}
}

// tellNew is tell of a version that the request has made. S3 names it only where versions are kept now.
func (v *versioned) tellNew(x *exchange, i *objects.Info) {
	if v.status == objects.Enabled {
		v.tell(x, i)
	}
}

// named returns the version that a request names; Latest without a name. It fails with
// listing.ErrNotFound where there is no null version.
func (v *versioned) named(ctx context.Context, key string, q url.Values) (objects.ID, error) {
	if !q.Has("versionId") {
		return objects.Latest, nil
	}
	return v.parse(ctx, key, q.Get("versionId"))
}

func (v *versioned) parse(ctx context.Context, key, text string) (objects.ID, error) {
	id, refusal := parseVersion(text)
	if refusal != nil {
		return id, refusal
	}
	if text == nullVersion && v.status != objects.Never {
		return v.null(ctx, key)
	}
	return id, nil
}

// parseVersion reads a version id; of the null version, which has another one in each key, Latest.
func parseVersion(text string) (objects.ID, *Error) {
	switch text {
	case "":
		return objects.ID{}, invalidArgument("Version id cannot be the empty string")
	case nullVersion:
		return objects.Latest, nil
	}
	id, err := objects.ParseID(text)
	if err != nil {
		return id, invalidArgument("Invalid version id specified: %.64q.", text)
	}
	return id, nil
}

// null returns the null version of a key. It fails with listing.ErrNotFound.
func (v *versioned) null(ctx context.Context, key string) (objects.ID, error) {
	q := objects.Query{Prefix: []byte(key), Limit: 2}
	for {
		page, err := v.ListVersions(ctx, q)
		if err != nil {
			return objects.ID{}, err
		}
		for i := range page.Items {
			switch item := &page.Items[i]; {
			case string(item.Key) != key: // all of the key come before what only begins with it
				return objects.ID{}, listing.ErrNotFound
			case item.Null:
				return item.ID, nil
			}
		}
		if page.Next == "" {
			return objects.ID{}, listing.ErrNotFound
		}
		q.Token, q.Limit = page.Next, maxPageKeys
	}
}

// answersTo reports whether a version may be named by text. Those before versions were kept have an id below, which is
// no name of theirs: only "null" is.
func answersTo(i *objects.Info, text string) bool { return versionText(i) == text }

// head reads what there is to say about a version, which the request names by text. Errors are S3's; where a delete
// marker is the answer, its headers are set.
func (v *versioned) head(x *exchange, key string, id objects.ID, text string) (objects.Info, error) {
	i, err := v.Head(x.ctx(), []byte(key), id)
	switch {
	case errors.Is(err, objects.ErrDeleted): // the newest version
		v.tell(x, &i)
		return i, noSuchKey()
	case id != objects.Latest && (errors.Is(err, listing.ErrNotFound) || err == nil && !answersTo(&i, text)):
		return i, noSuchVersion()
	case err == nil && i.Marker:
		v.tell(x, &i)
		x.w.Header().Set("Allow", http.MethodDelete)
		x.w.Header().Set("Last-Modified", i.Modified().Format(http.TimeFormat))
		return i, refuse(http.StatusMethodNotAllowed, "MethodNotAllowed",
			"The specified method is not allowed against this resource: the version is a delete marker.")
	}
	return i, err
}

func noSuchVersion() *Error {
	return refuse(http.StatusNotFound, "NoSuchVersion", "The specified version does not exist.")
}

// asObject is a version as the answers to all reads have it.
func asObject(i *objects.Info) *Object {
	o := &Object{Modified: i.Modified(), Size: i.Size, ETag: i.ETag(), ContentType: i.ContentType}
	for _, p := range i.Headers() {
		o.Headers = append(o.Headers, Header(p))
	}
	return o
}

func (o *Object) meta() objects.Meta {
	m := objects.Meta{Size: -1, ContentType: o.ContentType}
	for _, kept := range o.Headers {
		m.Headers = append(m.Headers, objects.Pair(kept))
	}
	return m
}

// streamBytes is the memory for a body of any size on its way.
const streamBytes = 64 << 10

// putVersion stores an object of any size.
func (h *Handler) putVersion(x *exchange, in *versioned, c writeCondition) error {
	o, refusal := h.describeNew(x.r)
	if refusal != nil {
		return refusal
	}
	if x.r.Header.Get(headerSize)+x.r.Header.Get(headerETag) != "" {
		return notImplemented(headerSize + " in a bucket of objects, which keeps their bytes: make a bucket with " +
			headerKind + ": plain for objects whose bytes live elsewhere")
	}
	m := o.meta()
	if m.Tags, refusal = x.tagsOf(); refusal != nil {
		return refusal
	}
	from, came, refusal := h.intake(x, "")
	if refusal != nil {
		return refusal
	}
	m.Size, m.Sums, m.MD5 = came.Size, came.Sums, came.MD5
	var i objects.Info
	err := h.changeBy(x, in, c, from, m.Size, func(from io.Reader) (err error) {
		i, err = in.Put(x.ctx(), []byte(x.key), from, m)
		return err
	})
	if err != nil {
		return err
	}
	in.tellNew(x, &i)
	in.tellExpiry(x, &i)
	x.tellSums(i.Sums(), i.Sums())
	x.w.Header().Set("ETag", quoted(i.ETag()))
	return nil
}

// intake returns the body of a request, of any size, with its length, or -1, its MD5 if it came before, and the
// checksums that come with it, which are complete once the body is. It has one by the algorithm that is named; others
// may not come then. A small body is read before the work begins.
func (h *Handler) intake(x *exchange, algorithm string) (from io.Reader, m objects.Meta, refusal *Error) {
	b, refusal := h.open(x, maxObjectBytes, func(n int64) int64 { return min(n, streamBytes) })
	if refusal != nil {
		return nil, m, refusal
	}
	if refusal := b.sumBy(algorithm); refusal != nil {
		return nil, m, refusal
	}
	m.Size, m.Sums, m.MD5 = b.length, b.sums(), b.md5()
	if b.length < 0 || b.length > streamBytes {
		h.beginStream(x)
		return &arriving{body: b, x: x, sums: m.Sums}, m, nil
	}
	data, refusal := b.all()
	if refusal == nil {
		refusal = h.begin(x)
	}
	if refusal != nil {
		return nil, m, refusal
	}
	b.fill(m.Sums)
	m.Size = int64(len(data))
	return bytes.NewReader(data), m, nil
}

// maxObjectBytes is S3's limit for one PutObject.
const maxObjectBytes = 5 << 30

// streamTime is how long a body of any size may take on its way.
const streamTime = time.Hour

// beginStream begins a transfer of any size. It takes no slot, as the client is waited for; the memory
// that it holds bounds how many there are.
func (h *Handler) beginStream(x *exchange) {
	x.end = func() {}
	h.extend(x)
}

// extend gives a request the time of a transfer of any size.
func (h *Handler) extend(x *exchange) {
	ended := x.end
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.ctx()), streamTime)
	x.end = func() {
		cancel()
		ended()
	}
	x.r = x.r.WithContext(ctx)
}

// sums are the checksums that the client sends with a body, as the object keeps them: those of
// trailers have no value yet.
func (b *body) sums() (sums []objects.Pair) {
	for _, d := range b.digests {
		if name, ok := strings.CutPrefix(d.name, checksumPrefix); ok {
			sums = append(sums, objects.Pair{Name: strings.ToLower(name)})
		}
	}
	return sums
}

// md5 is what Content-MD5 says, with which the body is compared; nil: it does not come before the body.
func (b *body) md5() []byte {
	for _, d := range b.digests {
		if d.name == "Content-Md5" {
			return d.want
		}
	}
	return nil
}

// fill sets the values of sums once the body has come.
func (b *body) fill(sums []objects.Pair) {
	n := 0
	for _, d := range b.digests {
		if strings.HasPrefix(d.name, checksumPrefix) {
			sums[n].Value = d.value()
			n++
		}
	}
}

// wantsSums reports whether a request asks for checksums.
func (x *exchange) wantsSums() bool {
	return strings.EqualFold(x.r.Header.Get("X-Amz-Checksum-Mode"), "ENABLED")
}

// tellSums sets the headers with checksums of an object, or of a part of one with the checksums of.
func (x *exchange) tellSums(sums, of []objects.Pair) {
	for _, s := range sums {
		x.w.Header().Set(checksumPrefix+s.Name, s.Value)
	}
	if len(sums) > 0 {
		x.w.Header().Set(headerChecksumType, checksumType(of))
	}
}

// paceBytes is how much of a body of any size must come, or be read, in the time for so many bytes.
const paceBytes = 256 << 10

// arriving is a body of any size on its way into the store.
type arriving struct {
	*body
	x    *exchange
	sums []objects.Pair // filled at the end
	due  int64          // how much has come when the next deadline is set
}

func (a *arriving) Read(p []byte) (int, error) {
	if a.n >= a.due {
		a.due = a.n + paceBytes
		a.x.h.pace(a.x, (*http.ResponseController).SetReadDeadline)
	}
	n, err := a.body.Read(p)
	if errors.Is(err, io.EOF) {
		a.fill(a.sums)
		// The rest of the work is bounded like that of other requests.
		ctx, cancel := a.x.ctx(), a.x.end
		timer := time.AfterFunc(a.x.h.o.RequestTimeout, cancel)
		context.AfterFunc(ctx, func() { timer.Stop() })
	}
	return n, err
}

// pace gives a client time for the next paceBytes.
func (h *Handler) pace(x *exchange, set func(*http.ResponseController, time.Time) error) {
	if h.o.MinRate > 0 {
		_ = set(http.NewResponseController(x.w), time.Now().Add(h.timeFor(paceBytes)))
	}
	if h.o.Busy != nil { // the client is waited for since now, not since the request began
		h.o.Busy(x.ctx(), true)
		h.o.Busy(x.ctx(), false)
	}
}

// getVersion answers a version, or a range of it, if the conditions hold; to HEAD without the body.
func (h *Handler) getVersion(x *exchange, in *versioned) error {
	withBody := x.r.Method == http.MethodGet
	id, err := in.named(x.ctx(), x.key, x.query)
	if err != nil {
		return x.noVersion(err)
	}
	// Reading goes on when the time of the request's work is over, until the client has it all.
	ctx, cancel := context.WithCancel(context.WithoutCancel(x.ctx()))
	defer cancel()
	working := context.AfterFunc(x.ctx(), cancel)
	part := objects.All
	rangeAsked := x.r.Header.Get("Range")
	var i objects.Info
	var got *objects.Object
	if x.query.Has("partNumber") {
		i, part, err = in.partOf(x, id)
	} else if withBody && rangeAsked == "" && id == objects.Latest {
		if got, err = in.Get(ctx, []byte(x.key), id, part); errors.Is(err, objects.ErrDeleted) {
			i, err = in.head(x, x.key, id, "")
		} else if err == nil {
			defer got.Body.Close()
			i = got.Info
		}
	} else {
		i, err = in.head(x, x.key, id, x.query.Get("versionId"))
	}
	if err != nil {
		return err
	}
	o := asObject(&i)
	switch v, name := evaluate(x.r.Header, "", o); v {
	case failed:
		return preconditionFailed(name)
	case notModified:
		in.tell(x, &i)
		return x.unchanged(o)
	}
	status, length := http.StatusOK, o.Size
	if part != objects.All && o.Size > 0 {
		status, length = http.StatusPartialContent, part.N
	}
	if part != objects.All && i.Parts() > 0 {
		x.w.Header().Set("X-Amz-Mp-Parts-Count", strconv.Itoa(i.Parts()))
	}
	if rangeAsked != "" && rangeCounts(x.r.Header.Get("If-Range"), o) {
		start, n, partial, refusal := parseRange(rangeAsked, o.Size)
		if refusal != nil {
			x.w.Header().Set("Content-Range", fmt.Sprintf("bytes */%d", o.Size))
			return refusal
		}
		if partial {
			status, length, part = http.StatusPartialContent, n, objects.Range{Offset: start, N: n}
		}
	}
	if withBody && got == nil {
		// Of the version that was judged: a newer one may be there by now.
		if got, err = in.Get(ctx, []byte(x.key), i.ID, part); err != nil {
			return err
		}
		defer got.Body.Close()
	}
	working()
	if withBody && length > freeBytes {
		if refusal := x.take(x.ctx(), min(length, streamBytes)); refusal != nil {
			return refusal
		}
	}
	h.worked(x)
	in.tell(x, &i)
	if id == objects.Latest {
		in.tellExpiry(x, &i)
	}
	x.describe(o)
	x.override()
	x.tellTags(&i)
	if x.wantsSums() && status == http.StatusOK {
		x.tellSums(i.Sums(), i.Sums())
	}
	if status == http.StatusPartialContent {
		x.w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", part.Offset, part.Offset+length-1, o.Size))
		x.w.Header().Set("Content-Length", strconv.FormatInt(length, 10))
	}
	x.writeHeader(status)
	if !withBody {
		return nil
	}
	return x.send(got.Body, length)
}

// noVersion is S3's error where a version that is named does not exist.
func (x *exchange) noVersion(err error) error {
	if errors.Is(err, listing.ErrNotFound) {
		return noSuchVersion()
	}
	return err
}

// send sends n bytes of a body of any size.
func (x *exchange) send(from io.Reader, n int64) error {
	buf := make([]byte, min(n, streamBytes))
	for due := int64(freeBytes); n > 0; {
		got, err := io.ReadFull(from, buf[:min(n, int64(len(buf)))])
		if err != nil {
			return err
		}
		if due -= int64(got); due < 0 {
			due = paceBytes - int64(len(buf))
			x.h.pace(x, (*http.ResponseController).SetWriteDeadline)
		}
		if err := x.write(buf[:got]); err != nil {
			return err
		}
		n -= int64(got)
	}
	return nil
}

// removed is what a delete has done.
type removed struct {
	version string // of the version that was deleted, or of the new delete marker; "": nothing to tell
	marker  bool   // it is, or was, a delete marker
	made    bool   // the delete marker is new
}

// remove deletes an object, or a version of it for good. It succeeds where there is none.
func (h *Handler) remove(x *exchange, in *versioned, key string, c writeCondition, version *string) (removed, error) {
	if version != nil {
		id, refusal := parseVersion(*version)
		if refusal != nil {
			return removed{}, refusal
		}
		if id == objects.Latest && in.status == objects.Never {
			version = nil // the only version
		}
	}
	if version == nil {
		var i objects.Info
		err := h.change(x, in, key, c, func(Bucket) (err error) {
			i, err = in.Delete(x.ctx(), []byte(key))
			return err
		})
		if err != nil || in.status == objects.Never {
			return removed{}, err
		}
		return removed{versionText(&i), true, true}, nil
	}
	var i objects.Info
	own := c
	c.size, c.modified = nil, nil // they are about this version, If-Match about the newest one
	err := h.change(x, in, key, c, func(Bucket) error {
		id, err := in.parse(x.ctx(), key, *version)
		if err == nil && (*version != nullVersion || own.present) {
			if i, err = in.Head(x.ctx(), []byte(key), id); err == nil && !answersTo(&i, *version) {
				i, err = objects.Info{}, listing.ErrNotFound
			}
			if err == nil {
				if refusal := own.ofVersion(asObject(&i)); refusal != nil {
					return refusal
				}
			}
		}
		if err == nil {
			i, err = in.DeleteVersion(x.ctx(), []byte(key), id)
		}
		if errors.Is(err, listing.ErrNotFound) {
			return nil
		}
		return err
	})
	return removed{*version, i.Marker && in.status != objects.Never, false}, err
}

func (h *Handler) deleteVersion(x *exchange, in *versioned, c writeCondition) error {
	var version *string
	if x.query.Has("versionId") {
		version = new(x.query.Get("versionId"))
	}
	done, err := h.remove(x, in, x.key, c, version)
	if err == nil && done.version != "" {
		x.w.Header().Set(headerVersion, done.version)
	}
	if err == nil && done.marker {
		x.w.Header().Set(headerMarker, "true")
	}
	return x.done(http.StatusNoContent, err)
}
