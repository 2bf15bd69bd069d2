package s3api

import (
	"encoding/xml"
	"net/http"
	"strings"

	"golang.org/x/sync/errgroup"
)

const (
	// maxDeletes is S3's limit for one DeleteObjects.
	maxDeletes = 1000
	// maxDeleteBytes bounds its document: so many of the longest keys, each
	// character written as a reference.
	maxDeleteBytes = maxDeletes * 8 * maxKeyBytes
	// deletesAtOnce bounds what one request does at the same time.
	deletesAtOnce = 64
)

// deleteDocument is what DeleteObjects is sent.
type deleteDocument struct {
	XMLName xml.Name `xml:"Delete"`
	Quiet   bool
	Object  []deleteEntry
	Others  []struct{ XMLName xml.Name } `xml:",any"`
}

type deleteEntry struct {
	Key       string
	VersionId *string
	Others    []struct{ XMLName xml.Name } `xml:",any"`
}

// deleteObjects removes up to 1,000 objects, each for itself. If the store fails
// for any of them the whole request is answered 503: it can be sent again.
func (h *Handler) deleteObjects(x *exchange) error {
	if !hasDigest(x.r.Header) {
		return refuse(http.StatusBadRequest, "InvalidRequest", "Missing required header for this request: Content-MD5, or x-amz-checksum-")
	}
	body, refusal := readBody(x.r, x.payload, maxDeleteBytes)
	if refusal != nil {
		return refusal
	}
	doc, refusal := parseDelete(body)
	if refusal != nil {
		return refusal
	}
	if err := h.exists(x); err != nil {
		return err
	}
	outcomes := make([]*Error, len(doc.Object))
	var g errgroup.Group
	g.SetLimit(deletesAtOnce)
	for i := range doc.Object {
		g.Go(func() error {
			if err := h.deleteOne(x, &doc.Object[i]); err != nil {
				outcomes[i] = h.translate(x, err)
			}
			return nil
		})
	}
	_ = g.Wait()
	b := newXML()
	defer b.free()
	b.root("DeleteResult")
	for i, outcome := range outcomes {
		entry := &doc.Object[i]
		switch {
		case outcome != nil && outcome.Status >= 500:
			return outcome
		case outcome != nil:
			b.raw("<Error>")
			entry.write(b)
			b.text("Code", outcome.Code)
			b.text("Message", outcome.Message)
			b.raw("</Error>")
		case !doc.Quiet:
			b.raw("<Deleted>")
			entry.write(b)
			b.raw("</Deleted>")
		}
	}
	b.close("DeleteResult")
	return x.writeXML(http.StatusOK, b)
}

func (e *deleteEntry) write(b *xmlBuffer) {
	b.text("Key", e.Key)
	if e.VersionId != nil {
		b.text("VersionId", *e.VersionId)
	}
}

// parseDelete reads the document of DeleteObjects.
func parseDelete(body []byte) (*deleteDocument, *Error) {
	malformed := func(format string, args ...any) (*deleteDocument, *Error) {
		return nil, refuse(http.StatusBadRequest, "MalformedXML", "The XML you provided was not well-formed or did not validate against our published schema: "+format, args...)
	}
	var doc deleteDocument
	if err := xml.Unmarshal(body, &doc); err != nil {
		return malformed("%v.", err)
	}
	if n := len(doc.Object); n == 0 || n > maxDeletes {
		return malformed("it has %d objects: 1 to %d.", n, maxDeletes)
	}
	if len(doc.Others) > 0 {
		return malformed("%s is not known.", doc.Others[0].XMLName.Local)
	}
	for i := range doc.Object {
		if others := doc.Object[i].Others; len(others) > 0 {
			// ETag, Size, LastModifiedTime: conditions. To ignore them would
			// delete what should stay.
			return nil, notImplemented("DeleteObjects with " + others[0].XMLName.Local)
		}
	}
	return &doc, nil
}

func (h *Handler) deleteOne(x *exchange, e *deleteEntry) error {
	switch {
	case e.Key == "":
		return refuse(http.StatusBadRequest, "UserKeyMustBeSpecified", "The bucket POST must contain the specified field name. If it is specified, check the order of the fields.")
	case len(e.Key) > maxKeyBytes:
		return refuse(http.StatusBadRequest, "KeyTooLongError", "Your key has %d bytes: at most %d.", len(e.Key), maxKeyBytes)
	case e.VersionId != nil && *e.VersionId != nullVersion && *e.VersionId != "":
		return refuse(http.StatusNotFound, "NoSuchVersion", "The specified version does not exist: buckets have no versions here, only %q.", nullVersion)
	case !x.who.mayKeys(x.bucket, e.Key):
		return accessDenied("The access key is limited to other buckets or prefixes.")
	}
	return h.change(x, e.Key, writeCondition{}, func(b Bucket) error { return b.Delete(x.ctx(), []byte(e.Key)) })
}

// hasDigest says whether a digest of the body comes with it, or after it.
func hasDigest(h http.Header) bool {
	for name := range h {
		if digests[name] != nil {
			return true
		}
	}
	return strings.HasPrefix(strings.ToLower(h.Get("X-Amz-Trailer")), "x-amz-checksum-")
}
