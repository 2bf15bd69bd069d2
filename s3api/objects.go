package s3api

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// These are HTTP headers of evenkeel for objects. S3 does not have them.
const (
	// headerSize and headerETag have the size and the ETag of an object whose bytes are stored elsewhere.
	headerSize = "X-Evenkeel-Size"
	headerETag = "X-Evenkeel-Etag"
	// headerKeyBytes with the value "any" lets PutObject and CopyObject store a key that is not UTF-8. The access key
	// must also be allowed to store keys of this kind.
	headerKeyBytes = "X-Evenkeel-Key-Bytes"
)

const (
	metaPrefix = "X-Amz-Meta-"
	// maxMetaBytes is the largest size in bytes of user metadata, names and values together, as in S3.
	maxMetaBytes = 2 << 10
	// maxHeaderValue is the largest length in bytes of the value of any other header that is stored.
	maxHeaderValue = 1 << 10
	// defaultType is the Content-Type in answers for an object without a Content-Type, as in S3.
	defaultType = "binary/octet-stream"
)

// keptHeaders are the headers of a put that are stored with the object and returned to readers as they were sent. User
// metadata, in headers named x-amz-meta-…, is stored, too.
var keptHeaders = []string{"Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Language", "Expires"}

func (h *Handler) putObject(x *exchange) error {
	if refusal := x.checkNewKey(); refusal != nil {
		return refusal
	}
	condition := readWriteCondition(x.r.Header)
	in, err := h.objectsOf(x.ctx(), x.bucket)
	if err != nil {
		return err
	}
	if in != nil {
		return h.putVersion(x, in, condition)
	}
	if refusal := x.refuseTags(); refusal != nil {
		return refusal
	}
	o, refusal := h.readObject(x)
	if refusal != nil {
		return refusal
	}
	err = h.change(x, nil, x.key, condition, func(b Bucket) error {
		return b.Put(x.ctx(), []byte(x.key), o.AppendRecord(nil))
	})
	if err != nil {
		return err
	}
	x.w.Header().Set("ETag", quoted(o.ETag))
	return nil
}

// readObject returns the object that a put to a plain bucket describes: the metadata from the request's headers, and
// the body.
func (h *Handler) readObject(x *exchange) (*Object, *Error) {
	o, refusal := h.describeNew(x.r)
	if refusal != nil {
		return nil, refusal
	}
	if refusal := readExternal(o, x.r.Header); refusal != nil {
		return nil, refusal
	}
	body, refusal := h.receive(x, h.o.MaxBodyBytes, itself)
	if refusal != nil {
		return nil, refusal
	}
	if o.External {
		if len(body) > 0 {
			return nil, invalidArgument("An object with %s has an empty body: its bytes live elsewhere.", headerSize)
		}
		return o, nil
	}
	o.Body = body
	o.seal()
	return o, nil
}

// describeNew returns an Object without a body. Its metadata, such as Content-Type and user metadata, is from the
// headers of the put request r.
func (h *Handler) describeNew(r *http.Request) (*Object, *Error) {
	o := &Object{Modified: h.o.Now(), ContentType: r.Header.Get("Content-Type")}
	if len(o.ContentType) > maxHeaderValue {
		return nil, invalidArgument("Content-Type has more than %d bytes.", maxHeaderValue)
	}
	for _, name := range keptHeaders {
		value := r.Header.Get(name)
		if name == "Content-Encoding" {
			value = withoutChunked(value)
		}
		if len(value) > maxHeaderValue {
			return nil, invalidArgument("%s has more than %d bytes.", name, maxHeaderValue)
		}
		if value != "" {
			o.Headers = append(o.Headers, Header{strings.ToLower(name), value})
		}
	}
	total := 0
	for name, values := range r.Header {
		if meta, ok := strings.CutPrefix(name, metaPrefix); ok {
			value := strings.Join(values, ",")
			// net/http refuses most such names and values in headers, but a presigned URL has metadata in its query.
			if !isToken(meta) || hasControl(value) {
				return nil, invalidArgument("The metadata header %q has control characters, "+
					"or a name that no header can have.", name)
			}
			if total += len(meta) + len(value); total > maxMetaBytes {
				return nil, refuse(http.StatusBadRequest, "MetadataTooLarge", "Your metadata headers exceed %d bytes.",
					maxMetaBytes)
			}
			o.Headers = append(o.Headers, Header{strings.ToLower(name), value})
		}
	}
	slices.SortFunc(o.Headers, func(a, b Header) int { return strings.Compare(a.Name, b.Name) })
	return o, nil
}

// readExternal reads the headers of a put of an object whose bytes are stored elsewhere. It sets the size and the ETag
// of the object from these headers. Without them it does nothing.
func readExternal(o *Object, header http.Header) *Error {
	size, etag := header.Get(headerSize), header.Get(headerETag)
	if size == "" && etag == "" {
		return nil
	}
	n, err := strconv.ParseInt(size, 10, 64)
	if err != nil || n < 0 {
		return invalidArgument("%s is not a size in bytes: %q (%s and %s go together).", headerSize, size, headerSize,
			headerETag)
	}
	if unquoted, ok := strings.CutPrefix(etag, `"`); ok {
		etag = strings.TrimSuffix(unquoted, `"`)
	}
	bad := func(r rune) bool { return r <= ' ' || r > '~' || r == '"' }
	if etag == "" || len(etag) > maxETagBytes || strings.ContainsFunc(etag, bad) {
		return invalidArgument("%s is not an ETag of 1 to %d printable characters (%s and %s go together).", headerETag,
			maxETagBytes, headerSize, headerETag)
	}
	o.External, o.Size, o.ETag = true, n, etag
	return nil
}

// withoutChunked returns the value of a Content-Encoding header without the coding aws-chunked. That coding is only for
// the transfer of a put, and is not stored with the object.
func withoutChunked(value string) string {
	if all := elements(value); slices.Contains(all, "aws-chunked") {
		return strings.Join(slices.DeleteFunc(all, func(enc string) bool { return enc == "aws-chunked" }), ", ")
	}
	return value
}

// getObject answers a read of an object: with all of its bytes or a range of them, or for HEAD with the headers only.
// If the conditions of the request do not hold, the answer is 304 or 412.
func (h *Handler) getObject(x *exchange) error {
	withBody := x.r.Method == http.MethodGet
	if refusal := checkOverrides(x.query); refusal != nil {
		return refusal
	}
	in, err := h.objectsOf(x.ctx(), x.bucket)
	if err != nil {
		return err
	}
	if in != nil {
		return h.getVersion(x, in)
	}
	if x.query.Has("partNumber") {
		return notImplemented("partNumber in a bucket for plain entries")
	}
	if refusal := checkVersion(x.query); refusal != nil {
		return refusal
	}
	o, err := h.load(x, x.bucket, x.key)
	if err != nil {
		return err
	}
	switch v, name := evaluate(x.r.Header, "", o, h.o.Now()); v {
	case failed:
		return preconditionFailed(name)
	case notModified:
		return x.unchanged(o)
	}
	if o.External && withBody {
		return refuse(http.StatusConflict, "ObjectBodyElsewhere",
			"The bytes of this object live elsewhere: this server has its metadata only (HEAD shows it).")
	}
	start, length, partial := int64(0), o.Size, false
	if v := x.r.Header.Get("Range"); v != "" && rangeCounts(x.r.Header.Get("If-Range"), o) {
		var refusal *Error
		if start, length, partial, refusal = parseRange(v, o.Size); refusal != nil {
			x.w.Header().Set("Content-Range", fmt.Sprintf("bytes */%d", o.Size))
			return refusal
		}
	}
	h.sends(x, int(length))
	if withBody && length > freeBytes {
		if refusal := x.take(x.ctx(), length); refusal != nil {
			return refusal
		}
	}
	x.describe(o)
	x.override()
	status := http.StatusOK
	if partial {
		status = http.StatusPartialContent
		x.w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", start, start+length-1, o.Size))
		x.w.Header().Set("Content-Length", strconv.FormatInt(length, 10))
	}
	x.writeHeader(status)
	if !withBody {
		return nil
	}
	return x.write(o.Body[start : start+length])
}

// rangeCounts reports whether the server may answer a Range header with a range of the object o. ifRange is the value
// of the header If-Range: the ETag or the time of modification of the version that the client has. If o is another
// version, the result is false, and the answer is the whole object.
func rangeCounts(ifRange string, o *Object) bool {
	if t, err := http.ParseTime(ifRange); err == nil {
		return seconds(o.Modified).Equal(t)
	}
	return ifRange == "" || same(ifRange, o.ETag)
}

// overrides maps query parameters of a read to headers of the answer. For example, the value of the parameter
// response-content-type replaces the value of the header Content-Type.
var overrides = map[string]string{
	"response-cache-control": "Cache-Control", "response-content-disposition": "Content-Disposition",
	"response-content-encoding": "Content-Encoding",
	"response-content-language": "Content-Language", "response-content-type": "Content-Type",
	"response-expires": "Expires",
}

// checkOverrides returns an error if a query parameter that replaces a header of the answer contains control
// characters.
func checkOverrides(query url.Values) *Error {
	for param := range overrides {
		if hasControl(query.Get(param)) {
			return invalidArgument("The parameter %s has control characters.", param)
		}
	}
	return nil
}

// hasControl reports whether value contains control characters, which are not allowed in HTTP headers.
func hasControl(value string) bool { return strings.ContainsFunc(value, unicode.IsControl) }

// isToken reports whether name has only characters that the name of an HTTP header may have (RFC 9110, section 5.6.2).
func isToken(name string) bool {
	return !strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune("\"(),/:;<=>?@[\\]{}", r)
	})
}

// override replaces headers of the answer as the query parameters of a read demand (see overrides).
func (x *exchange) override() {
	header := x.w.Header()
	for param, name := range overrides {
		if v := x.query.Get(param); v != "" {
			delete(header, strings.ToLower(name)) // describe may have set it under its lower-case name
			header.Set(name, v)
		}
	}
}

// load reads the object that a plain bucket has under the key now. It fails with listing.ErrNotFound if there is none.
func (h *Handler) load(x *exchange, bucket, key string) (*Object, error) {
	entry, err := h.buckets.Bucket(bucket).Get(x.ctx(), []byte(key))
	if err != nil {
		return nil, err
	}
	o, err := ParseRecord(entry.Value)
	return &o, err
}

// describe sets the headers of the answer to a read from the metadata of the object o.
func (x *exchange) describe(o *Object) {
	header := x.w.Header()
	missing := 0
	for _, kept := range o.Headers {
		if !isToken(kept.Name) || hasControl(kept.Value) {
			missing++ // older versions stored such headers, and programs may store them through the library
			continue
		}
		// header.Set would capitalize the name. S3 sends the names of user metadata in lower case, and clients use them
		// as they are sent.
		header[kept.Name] = []string{kept.Value}
	}
	if missing > 0 {
		header.Set("X-Amz-Missing-Meta", strconv.Itoa(missing))
	}
	contentType := cmp.Or(o.ContentType, defaultType)
	if hasControl(contentType) {
		contentType = defaultType
	}
	header.Set("Content-Type", contentType)
	header.Set("Content-Length", strconv.FormatInt(o.Size, 10))
	header.Set("Accept-Ranges", "bytes")
	header.Set("ETag", quoted(o.ETag))
	header.Set("Last-Modified", o.Modified.UTC().Format(http.TimeFormat))
	if o.External {
		header.Set(headerSize, strconv.FormatInt(o.Size, 10))
		header.Set(headerETag, quoted(o.ETag))
	}
}

// unchanged answers a conditional read with 304 (not modified), as the client already has the object o.
func (x *exchange) unchanged(o *Object) error {
	x.describe(o)
	x.w.Header().Del("Content-Length")
	x.w.Header().Del("Content-Type")
	return x.done(http.StatusNotModified, nil)
}

func (h *Handler) deleteObject(x *exchange) error {
	condition, refusal := readDeleteCondition(x.r.Header)
	if refusal != nil {
		return refusal
	}
	in, err := h.objectsOf(x.ctx(), x.bucket)
	if err != nil {
		return err
	}
	if in != nil {
		return h.deleteVersion(x, in, condition)
	}
	if refusal := checkVersion(x.query); refusal != nil {
		return refusal
	}
	return x.done(http.StatusNoContent,
		h.change(x, nil, x.key, condition, func(b Bucket) error { return b.Delete(x.ctx(), []byte(x.key)) }))
}

func quoted(etag string) string { return `"` + etag + `"` }
