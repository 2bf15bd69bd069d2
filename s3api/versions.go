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
	"github.com/evenkeel/evenkeel/store"
)

// versioned is a bucket of objects with versions and bodies of any size, together with the bucket's settings as they
// were when the request began.
type versioned struct {
	*objects.Bucket
	status objects.Status
	rules  objects.Lifecycle
	// cors has the encoded rules about cross-origin requests, which most requests do not need. It is empty if the bucket
	// has none.
	cors []byte
}

// corsRules returns the bucket's rules about cross-origin requests. It fails with Unavailable if a newer program has
// made them.
func (v *versioned) corsRules() (corsRules, error) {
	if len(v.cors) == 0 {
		return nil, nil
	}
	rules, ok := decodeCORS(v.cors)
	if !ok {
		return nil, unknownSetting(corsDocument)
	}
	return rules, nil
}

func unknownSetting(name string) error {
	return store.Errorf(store.Unavailable,
		"the bucket has a setting %q that this program does not know: a newer one made it", name)
}

// objectsOf opens the bucket of objects with the given name. For a plain bucket, whose entries are keys with metadata
// and small bodies, it returns nil and no error.
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
	// The whole request works on the bucket that has the name now, even if the name is given to another bucket while
	// the body arrives.
	b, s, err := h.o.Objects.Open(ctx, bucket)
	if err != nil {
		return nil, err
	}
	v := &versioned{b, s.Status, s.Lifecycle, nil}
	for i := range s.Documents {
		d := &s.Documents[i]
		if d.Name != corsDocument || d.Body[0] != corsFormat {
			return nil, unknownSetting(d.Name)
		}
		v.cors = d.Body
	}
	return v, nil
}

// configuration returns the XML document of a request that changes a setting of a bucket of objects, e.g. its lifecycle
// rules. For a plain bucket, which has no such settings, it returns an error.
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

// versionText returns the ID of a version as clients see it. This is "null" for the null version, which was written
// while the bucket kept no versions, and otherwise the version's ID in the store.
func versionText(i *objects.Info) string {
	if i.Null {
		return nullVersion
	}
	return i.ID.String()
}

// tell sets those headers of the answer that name a version, and say whether the version is a delete marker. It sets no
// header if the bucket never kept versions.
func (v *versioned) tell(x *exchange, i *objects.Info) {
	if v.status == objects.Never {
		return
	}
	x.w.Header().Set(headerVersion, versionText(i))
	if i.Marker {
		x.w.Header().Set(headerMarker, "true")
	}
}

// tellNew sets those headers of the answer that name the version which the request has written. As in S3, it sets them
// only if the bucket keeps versions now.
func (v *versioned) tellNew(x *exchange, i *objects.Info) {
	if v.status == objects.Enabled {
		v.tell(x, i)
	}
}

// named returns the ID of the version that the query q of a request names, or objects.Latest if it names no version. If
// the query names the version "null" and the key has no such version, the error is listing.ErrNotFound.
func (v *versioned) named(ctx context.Context, key string, q url.Values) (objects.ID, error) {
	if !q.Has("versionId") {
		return objects.Latest, nil
	}
	return v.parse(ctx, key, q.Get("versionId"))
}

// parse returns the ID of the version of a key that text names, as a client sends it.
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

// parseVersion parses the ID of a version as a client sends it. For "null" the result is objects.Latest. The version
// called "null" has a different ID in each key, and is the latest version in a bucket that never kept versions.
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

// null returns the ID of that version of a key which clients call "null". It fails with listing.ErrNotFound if the key
// has no such version.
func (v *versioned) null(ctx context.Context, key string) (objects.ID, error) {
	q := objects.Query{Prefix: []byte(key), Limit: 2}
	for {
		page, err := v.ListVersions(ctx, q)
		if err != nil {
			return objects.ID{}, err
		}
		for i := range page.Items {
			switch item := &page.Items[i]; {
			case string(item.Key) != key: // longer keys with this prefix come after all versions of the key
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

// answersTo reports whether text is the name by which clients know the version i. A version that was written before the
// bucket kept versions has an ID in the store, but its only name is "null".
func answersTo(i *objects.Info, text string) bool { return versionText(i) == text }

// head returns the metadata of the version id of a key. text is the version's name in the request. The errors are those
// of S3. If the version is a delete marker, head also sets the headers that S3 sends with the error.
func (v *versioned) head(x *exchange, key string, id objects.ID, text string) (objects.Info, error) {
	i, err := v.Head(x.ctx(), []byte(key), id)
	switch {
	case errors.Is(err, objects.ErrDeleted): // the newest version is a delete marker
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

// asObject returns the metadata of a version as an Object without a body. The headers of answers are made from an
// Object.
func asObject(i *objects.Info) *Object {
	o := &Object{Modified: i.Modified(), Size: i.Size, ETag: i.ETag(), ContentType: i.ContentType}
	for _, p := range i.Meta().Headers {
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

// streamBytes is the memory in bytes that a request takes while it transfers a body of any size.
const streamBytes = 64 << 10

// putVersion serves a PutObject of any size. The parameter `in` is the bucket of objects, and c is the condition in the
// request's headers.
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
	x.tellSums(i.Meta().Sums, i.Meta().Sums)
	x.w.Header().Set("ETag", quoted(i.ETag()))
	return nil
}

// intake returns a reader of a request's body of any size, and the metadata m of the body: its length in bytes (-1 if
// unknown), its MD5 if a header has the MD5, and its checksums. The values of the checksums are complete only when the
// whole body was read. If algorithm is not empty, a checksum by this algorithm is computed, and the client may send no
// other. A body of at most streamBytes is read before the work begins.
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

// maxObjectBytes is the largest size in bytes of an object that S3 allows in one PutObject.
const maxObjectBytes = 5 << 30

// streamTime is the longest time that the transfer of one body may take, whatever its size.
const streamTime = time.Hour

// beginStream begins the transfer of a body of any size. The request needs no slot (the permit to be worked on), as the
// server mostly waits for the client. The number of transfers is bounded by the memory that each transfer takes.
func (h *Handler) beginStream(x *exchange) {
	x.end = func() {}
	h.extend(x)
}

// extend gives a request a new deadline, streamTime (1 hour) from now, in place of the deadline by
// Options.RequestTimeout.
func (h *Handler) extend(x *exchange) {
	ended := x.end
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.ctx()), streamTime)
	x.end = func() {
		cancel()
		ended()
	}
	x.r = x.r.WithContext(ctx)
}

// sums returns the checksums that come with a request's body, as pairs of algorithm and value. The values are still
// empty, as a checksum may come after the body. The method fill sets them when the body has arrived.
func (b *body) sums() (sums []objects.Pair) {
	for _, d := range b.digests {
		if name, ok := strings.CutPrefix(d.name, checksumPrefix); ok {
			sums = append(sums, objects.Pair{Name: strings.ToLower(name)})
		}
	}
	return sums
}

// md5 returns the MD5 of the body that the request's header Content-MD5 has, or nil if the header is missing.
func (b *body) md5() []byte {
	for _, d := range b.digests {
		if d.name == "Content-Md5" {
			return d.want
		}
	}
	return nil
}

// fill sets the values in sums, the checksums that the method sums has returned. It is called when the whole body has
// arrived.
func (b *body) fill(sums []objects.Pair) {
	n := 0
	for _, d := range b.digests {
		if strings.HasPrefix(d.name, checksumPrefix) {
			sums[n].Value = d.value()
			n++
		}
	}
}

// wantsSums reports whether a read asks for the checksums of the object in the answer, by the header
// x-amz-checksum-mode.
func (x *exchange) wantsSums() bool {
	return strings.EqualFold(x.r.Header.Get("X-Amz-Checksum-Mode"), "ENABLED")
}

// tellSums sets the headers of the answer that have checksums of an object or of one of its parts. sums are these
// checksums. The parameter `of` has the checksums of the whole object. Their type goes into another header.
func (x *exchange) tellSums(sums, of []objects.Pair) {
	for _, s := range sums {
		x.w.Header().Set(checksumPrefix+s.Name, s.Value)
	}
	if len(sums) > 0 {
		x.w.Header().Set(headerChecksumType, checksumType(of))
	}
}

// paceBytes is the number of bytes after which a transfer gets a new deadline. So the server notices a slow client long
// before the end of a large body.
const paceBytes = 256 << 10

// arriving is a reader of a body of any size that a client is sending. Each paceBytes (256 KiB) of the body must arrive
// before a deadline of their own.
type arriving struct {
	*body
	x    *exchange
	sums []objects.Pair // their values are set at io.EOF
	due  int64          // the count of bytes at which the next deadline is set
}

func (a *arriving) Read(p []byte) (int, error) {
	if a.n >= a.due {
		a.due = a.n + paceBytes
		a.x.h.pace(a.x, (*http.ResponseController).SetReadDeadline)
	}
	n, err := a.body.Read(p)
	if errors.Is(err, io.EOF) {
		a.fill(a.sums)
		// The work after the transfer is bounded by RequestTimeout, as for other requests.
		ctx, cancel := a.x.ctx(), a.x.end
		timer := time.AfterFunc(a.x.h.o.RequestTimeout, cancel)
		context.AfterFunc(ctx, func() { timer.Stop() })
	}
	return n, err
}

// pace gives the client a new deadline for the next paceBytes (256 KiB) of a transfer. The parameter set is the
// function that sets the deadline, of reads or of writes.
func (h *Handler) pace(x *exchange, set func(*http.ResponseController, time.Time) error) {
	if h.o.MinRate > 0 {
		_ = set(http.NewResponseController(x.w), time.Now().Add(h.timeFor(paceBytes)))
	}
	if h.o.Busy != nil { // tells that the wait for the client begins anew
		h.o.Busy(x.ctx(), true)
		h.o.Busy(x.ctx(), false)
	}
}

// getVersion answers a read of an object: with all bytes of a version or a range of them, or for HEAD with the headers
// only. The parameter `in` is the bucket of objects. If the conditions of the request do not hold, the answer is 304 or
// 412.
func (h *Handler) getVersion(x *exchange, in *versioned) error {
	withBody := x.r.Method == http.MethodGet
	id, err := in.named(x.ctx(), x.key, x.query)
	if err != nil {
		return x.noVersion(err)
	}
	// ctx ends with the request's time until working is called. Then the body is read until the client has all of it.
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
	switch v, name := evaluate(x.r.Header, "", o, h.o.Now()); v {
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
	if part != objects.All && i.Parts > 0 {
		x.w.Header().Set("X-Amz-Mp-Parts-Count", strconv.Itoa(int(i.Parts)))
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
		// The body is read by the id of the version whose conditions were checked, as there may be a newer one by now.
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
		x.tellSums(i.Meta().Sums, i.Meta().Sums)
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

// noVersion returns S3's error NoSuchVersion if err is listing.ErrNotFound. It returns any other error, and nil,
// unchanged.
func (x *exchange) noVersion(err error) error {
	if errors.Is(err, listing.ErrNotFound) {
		return noSuchVersion()
	}
	return err
}

// send copies n bytes of an object's body to the client. The parameter `from` is the reader of the body. send copies
// small pieces, with a new deadline for every paceBytes (256 KiB).
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

// removed is the outcome of a delete in a bucket of objects, from which the answer is made.
type removed struct {
	version string // id of the deleted version, or of the new delete marker; "": not reported
	marker  bool   // the version is a delete marker
	made    bool   // the delete marker is new
}

// remove deletes an object from a bucket of objects, if the condition c holds. The parameter `in` is the bucket, and
// key is the object's key. If version is nil, remove hides the object by a delete marker. If not, *version is the name
// of a version, which remove deletes for good. It is no error if the object or the version does not exist.
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
	c.size, c.modified = nil, nil // they concern the named version, If-Match the newest one
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

// deleteVersion serves a DeleteObject in a bucket of objects. The parameter `in` is the bucket, and c is the condition
// in the request's headers.
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
