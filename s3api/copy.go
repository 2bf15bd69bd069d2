package s3api

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
)

const headerCopySource = "X-Amz-Copy-Source"

// copyObject serves the operation CopyObject: it reads one object and then writes another. The two steps are not
// atomic, so the source may change between them.
func (h *Handler) copyObject(x *exchange) error {
	from, refusal := x.copySource()
	if refusal != nil {
		return refusal
	}
	if refusal := x.checkNewKey(); refusal != nil {
		return refusal
	}
	replace := false
	switch d := x.r.Header.Get("X-Amz-Metadata-Directive"); d {
	case "", "COPY":
	case "REPLACE":
		replace = true
	default:
		return invalidArgument("Unknown metadata directive: %q.", d)
	}
	tags, refusal := x.copiedTags()
	if refusal != nil {
		return refusal
	}
	condition := readWriteCondition(x.r.Header)
	itself := from.bucket == x.bucket && from.key == x.key
	if itself && !replace && !from.query.Has("versionId") {
		return invalidRequest("This copy request is illegal because it is trying to copy an object to itself without " +
			"changing the object's metadata.")
	}
	in, err := h.objectsOf(x.ctx(), x.bucket)
	if err != nil {
		return err
	}
	if in == nil && tags != nil && len(*tags) > 0 {
		return x.refuseTags()
	}
	src, err := h.openSource(x, from)
	if err != nil {
		return err
	}
	defer src.close()
	o := src.Object
	if o.External && (!itself || in != nil) {
		return refuse(http.StatusConflict, "ObjectBodyElsewhere",
			"The bytes of this object live elsewhere, so they can't be copied here: copy them there, and put the new "+
				"object's size and ETag.")
	}
	if refusal := h.checkCopied(o.Size); refusal != nil && !o.External {
		return refusal
	}
	if replace {
		described, refusal := h.describeNew(x.r)
		if refusal != nil {
			return refusal
		}
		o.ContentType, o.Headers = described.ContentType, described.Headers
	}
	if tags != nil {
		src.tags = *tags
	}
	if in != nil {
		err = h.copyInto(x, in, src, condition)
	} else {
		err = h.copyPlain(x, src, condition)
	}
	if err != nil {
		return err
	}
	src.tell(x)
	return x.writeDocument("CopyObjectResult", func(b *xmlBuffer) {
		b.time("LastModified", o.Modified)
		b.text("ETag", quoted(o.ETag))
		if in != nil {
			b.sums(src.sums)
			b.sumsType(src.sums)
		}
	})
}

// copiedTags returns the tags that a copy gets in place of the tags of its source. The result is nil if the copy keeps
// the tags of the source.
func (x *exchange) copiedTags() (*[]objects.Pair, *Error) {
	tags, refusal := x.tagsOf()
	if refusal != nil {
		return nil, refusal
	}
	switch d := x.r.Header.Get("X-Amz-Tagging-Directive"); d {
	case "", "COPY":
		return nil, nil //nolint:nilnil // nothing
	case "REPLACE":
		return &tags, nil
	default:
		return nil, invalidArgument("Unknown tagging directive: %q.", d)
	}
}

// source is the object, or the version of an object, that a request copies, with its body.
type source struct {
	*Object
	version string         // the version's id; "": its bucket never kept versions
	sums    []objects.Pair // of its body
	md5     []byte         // of its body; nil: not known
	tags    []objects.Pair
	// body is the body of a version in the bucket of objects named. body is nil if the source is in a plain bucket,
	// where the body is in Object.Body.
	body  io.ReadCloser
	named *versioned
	id    objects.ID
}

func (s *source) close() {
	if s.body != nil {
		_ = s.body.Close()
	}
}

// tell sets the header of the answer that has the ID of the copied version. It sets no header if the source's bucket
// never kept versions.
func (s *source) tell(x *exchange) {
	if s.version != "" {
		x.w.Header().Set(headerCopySource+"-Version-Id", s.version)
	}
}

// openSource opens the source of a copy: the object, or the version of an object, that the argument from names. It
// returns an error if the request has conditions on the source that do not hold. The caller closes the source.
func (h *Handler) openSource(x *exchange, from target) (*source, error) {
	s, err := h.readSource(x, from)
	if err != nil {
		return nil, err
	}
	if v, name := evaluate(x.r.Header, headerCopySource+"-", s.Object, h.o.Now()); v != goAhead {
		s.close()
		return nil, preconditionFailed("x-amz-copy-source-" + name)
	}
	return s, nil
}

// readSource opens the source of a copy, the object or version that the argument from names, without regard to
// conditions.
func (h *Handler) readSource(x *exchange, from target) (*source, error) {
	in, err := h.objectsOf(x.ctx(), from.bucket)
	if errors.Is(err, listing.ErrNoSuchBucket) {
		return nil, noSuchBucket(from.bucket)
	}
	if err != nil {
		return nil, err
	}
	if in == nil {
		if refusal := checkVersion(from.query); refusal != nil {
			return nil, refusal
		}
		o, err := h.load(x, from.bucket, from.key)
		if errors.Is(err, listing.ErrNoSuchBucket) {
			err = noSuchBucket(from.bucket)
		}
		return &source{Object: o}, err
	}
	id, err := in.named(x.ctx(), from.key, from.query)
	if err == nil && id != objects.Latest {
		var i objects.Info
		i, err = in.Head(x.ctx(), []byte(from.key), id)
		switch {
		case err == nil && !answersTo(&i, from.query.Get("versionId")):
			return nil, noSuchVersion()
		case err == nil && i.Marker:
			return nil, invalidRequest(
				"The source of a copy request may not specifically refer to a delete marker by version id.")
		}
	}
	if err != nil {
		return nil, x.noVersion(err)
	}
	h.extend(x)
	got, err := in.Get(x.ctx(), []byte(from.key), id, objects.All)
	switch {
	case errors.Is(err, objects.ErrDeleted):
		return nil, noSuchKey()
	case id != objects.Latest && err != nil:
		return nil, x.noVersion(err)
	case err != nil:
		return nil, err
	}
	s := &source{
		Object: asObject(&got.Info), sums: got.Meta().Sums, md5: got.Meta().MD5, tags: got.Meta().Tags, body: got.Body,
		named: in, id: got.ID,
	}
	if in.status != objects.Never {
		s.version = versionText(&got.Info)
	}
	return s, nil
}

// copyInto writes a copy of the object src, with its tags, if the condition c of the request holds. The parameter `in`
// is the bucket of objects into which the copy is written.
func (h *Handler) copyInto(x *exchange, in *versioned, src *source, c writeCondition) error {
	m := src.meta()
	m.Size, m.Sums, m.Tags, m.MD5 = src.Size, src.sums, src.tags, src.md5
	body := io.Reader(src.body)
	if src.body == nil {
		body = bytes.NewReader(src.Body)
	}
	algorithm, refusal := copiedChecksum(x.r.Header, src.sums)
	if refusal != nil {
		return refusal
	}
	if algorithm != "" {
		body, m.Sums = summing(body, algorithm)
	}
	if refusal := x.take(x.ctx(), min(src.Size, streamBytes)); refusal != nil {
		return refusal
	}
	var i objects.Info
	err := h.changeBy(x, in, c, body, src.Size, func(body io.Reader) (err error) {
		i, err = in.Put(x.ctx(), []byte(x.key), body, m)
		return err
	})
	if err == nil {
		in.tellNew(x, &i)
		in.tellExpiry(x, &i)
		src.Modified, src.ETag, src.sums = i.Modified(), i.ETag(), i.Meta().Sums
	}
	return err
}

// copyPlain writes a copy of the object src into a plain bucket, if the condition c holds. It returns an error if the
// body is longer than Options.MaxBodyBytes.
func (h *Handler) copyPlain(x *exchange, src *source, c writeCondition) error {
	o := src.Object
	if src.body != nil {
		if o.Size > h.o.MaxBodyBytes {
			return tooLarge(h.o.MaxBodyBytes)
		}
		if refusal := x.take(x.ctx(), o.Size); refusal != nil {
			return refusal
		}
		body, err := io.ReadAll(src.body)
		if err != nil {
			return err
		}
		o.Body = body
		o.seal()
	}
	o.Modified = h.o.Now()
	return h.change(x, nil, x.key, c, func(b Bucket) error {
		return b.Put(x.ctx(), []byte(x.key), o.AppendRecord(nil))
	})
}

// checkCopied returns an error if size, the number of bytes to be copied, is larger than one request may copy.
func (h *Handler) checkCopied(size int64) *Error {
	if size > h.mostCopied {
		return invalidRequest("The specified copy source is larger than the maximum allowable size for a copy source: "+
			"%d. Larger objects are copied in parts.", h.mostCopied)
	}
	return nil
}

// copySource parses the header that names the object to be copied: /BUCKET/KEY or BUCKET/KEY, perhaps followed by
// ?versionId=ID. It returns an error if the access key may not read the object.
func (x *exchange) copySource() (from target, refusal *Error) {
	// Some clients percent-encode the whole value with its slashes, others only the text between slashes. So the value
	// is decoded before it is cut at slashes, but after it is cut at the question mark, which is encoded in a key. A
	// plus sign is a blank, as in S3: some clients encode as for a query, and all others send a plus sign as %2B.
	source, query, named := strings.Cut(x.r.Header.Get(headerCopySource), "?")
	q, err := url.ParseQuery(query)
	if err != nil || named && (len(q) != 1 || len(q["versionId"]) != 1) {
		return target{}, invalidArgument(
			"Only versionId=ID may follow a question mark in x-amz-copy-source: that of a key is sent as %%3F.")
	}
	if source, err = url.QueryUnescape(source); err != nil {
		return target{}, invalidArgument("x-amz-copy-source can't be decoded: %v. A percent sign of a key is sent as %%25.", err)
	}
	if strings.HasPrefix(source, "arn:") {
		return target{}, notImplemented(x.op.name + " from an ARN")
	}
	bucket, key, _ := strings.Cut(strings.TrimPrefix(source, "/"), "/")
	if badBucketName(bucket) != "" || key == "" || len(key) > maxKeyBytes {
		return target{}, invalidArgument("Copy Source must mention the source bucket and key: sourcebucket/sourcekey")
	}
	if !x.who.mayKeys(bucket, key) {
		return target{}, accessDenied("The access key is limited to other buckets or prefixes than those of the source.")
	}
	return target{bucket, key, q}, nil
}

// checkVersion returns an error if the query q of a request names a version other than "null". It is called for plain
// buckets, which have no other versions.
func checkVersion(q url.Values) *Error {
	switch v := q.Get("versionId"); {
	case !q.Has("versionId") || v == nullVersion:
		return nil
	case v == "":
		return invalidArgument("Version id cannot be the empty string")
	}
	return invalidArgument("Invalid version id specified: buckets have no versions here, only %q.", nullVersion)
}

const nullVersion = "null"
