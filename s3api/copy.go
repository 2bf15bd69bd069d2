package s3api

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/evenkeel/evenkeel/listing"
)

const headerCopySource = "X-Amz-Copy-Source"

// copyObject reads one object and writes another, in two steps: the source may change in
// between.
func (h *Handler) copyObject(x *exchange) error {
	fromBucket, fromKey, refusal := copySource(x.r.Header.Get(headerCopySource))
	if refusal != nil {
		return refusal
	}
	if !x.who.mayKeys(fromBucket, fromKey) {
		return accessDenied("The access key is limited to other buckets or prefixes than those of the source.")
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
	condition, refusal := readWriteCondition(x.r.Header)
	if refusal != nil {
		return refusal
	}
	itself := fromBucket == x.bucket && fromKey == x.key
	if itself && !replace {
		return refuse(http.StatusBadRequest, "InvalidRequest",
			"This copy request is illegal because it is trying to copy an object to itself without changing the object's "+
				"metadata.")
	}
	o, err := h.load(x, fromBucket, fromKey)
	switch {
	case errors.Is(err, listing.ErrNoSuchBucket):
		return noSuchBucket(fromBucket)
	case err != nil:
		return err
	}
	if v, name := evaluate(x.r.Header, headerCopySource+"-", o); v != goAhead {
		return preconditionFailed("x-amz-copy-source-" + name)
	}
	if o.External && !itself {
		return refuse(http.StatusConflict, "ObjectBodyElsewhere",
			"The bytes of this object live elsewhere, so they can't be copied here: copy them there, and put the new "+
				"object's size and ETag.")
	}
	if replace {
		described, refusal := h.describeNew(x.r)
		if refusal != nil {
			return refusal
		}
		o.ContentType, o.Headers = described.ContentType, described.Headers
	}
	o.Modified = h.o.Now()
	err = h.change(x, x.key, condition, func(b Bucket) error {
		return b.Put(x.ctx(), []byte(x.key), o.AppendRecord(nil))
	})
	if err != nil {
		return err
	}
	return x.writeDocument("CopyObjectResult", func(b *xmlBuffer) {
		b.time("LastModified", o.Modified)
		b.text("ETag", quoted(o.ETag))
	})
}

// copySource parses the header that names the source: /BUCKET/KEY or BUCKET/KEY,
// percent-encoded, perhaps with ?versionId=null.
func copySource(value string) (bucket, key string, refusal *Error) {
	bad := func() (string, string, *Error) {
		return "", "", invalidArgument("Copy Source must mention the source bucket and key: sourcebucket/sourcekey")
	}
	if strings.HasPrefix(value, "arn:") {
		return "", "", notImplemented("CopyObject from an ARN")
	}
	path, query, _ := strings.Cut(value, "?")
	q, err := url.ParseQuery(query)
	if err != nil {
		return bad()
	}
	if refusal := checkVersion(q); refusal != nil {
		return "", "", refusal
	}
	bucket, key, _ = strings.Cut(strings.TrimPrefix(path, "/"), "/")
	key, _ = url.PathUnescape(key) // empty if it can't be read
	if badBucketName(bucket) != "" || key == "" || len(key) > maxKeyBytes {
		return bad()
	}
	return bucket, key, nil
}

// checkVersion accepts no version but null, the only one of an object.
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
