package s3api

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
)

const (
	// maxDeletes is the largest number of objects in one DeleteObjects request, as in S3.
	maxDeletes = 1000
	// maxDeleteBytes is the largest size in bytes of the XML document of a DeleteObjects request: maxDeletes keys of
	// the largest length, with each character written as a character reference.
	maxDeleteBytes = maxDeletes * 8 * maxKeyBytes
	// deletesAtOnce is the largest number of objects that one request deletes concurrently.
	deletesAtOnce = 64
)

// deleteDocument is the decoded document of a DeleteObjects request. If Quiet is true, the answer lists only failures.
type deleteDocument struct {
	Quiet  bool
	Object []deleteEntry
}

// deleteEntry is one object that a DeleteObjects request deletes: its key, perhaps a version, and a condition.
type deleteEntry struct {
	Key            string
	VersionId      *string
	writeCondition // If-Match is its ETag
}

// forDeletes returns the memory in bytes that a DeleteObjects request takes: for its document of n bytes, the keys in
// the document, and the answer. In the answer a character of a key may become a longer character reference, such as
// &quot;.
func forDeletes(n int64) int64 { return n + min(7*n, 7*maxDeletes*maxKeyBytes) + maxDeletes<<8 }

// deleteObjects serves the operation DeleteObjects, which deletes up to 1,000 objects. If some objects may not be
// deleted, the others are deleted all the same. If the store fails for any object, the answer to the whole request is
// 503, and the client can repeat the request.
func (h *Handler) deleteObjects(x *exchange) error {
	if !hasDigest(x.r.Header) {
		return invalidRequest("Missing required header for this request: Content-MD5, or x-amz-checksum-")
	}
	body, refusal := h.receive(x, maxDeleteBytes, forDeletes)
	if refusal != nil {
		return refusal
	}
	doc, refusal := parseDelete(body)
	if refusal != nil {
		return refusal
	}
	in, err := h.existing(x)
	if err != nil {
		return err
	}
	conditional := func(e deleteEntry) bool { return e.present }
	if !h.o.SoleWriter && slices.ContainsFunc(doc.Object, conditional) {
		return conditionsRefused(x) // before any of them is deleted
	}
	outcomes := make([]*Error, len(doc.Object))
	done := make([]removed, len(doc.Object))
	var g errgroup.Group
	g.SetLimit(deletesAtOnce)
	for i := range doc.Object {
		g.Go(func() error {
			var err error
			if done[i], err = h.deleteOne(x, in, &doc.Object[i]); err != nil {
				outcomes[i] = h.translate(x, err)
			}
			return nil
		})
	}
	_ = g.Wait()
	for _, outcome := range outcomes {
		if outcome != nil && outcome.Status >= 500 {
			return outcome
		}
	}
	return x.writeDocument("DeleteResult", func(b *xmlBuffer) {
		for i, outcome := range outcomes {
			switch {
			case outcome != nil:
				b.raw("<Error>")
				doc.Object[i].write(b)
				b.text("Code", outcome.Code)
				b.text("Message", outcome.Message)
				b.raw("</Error>")
			case !doc.Quiet:
				b.raw("<Deleted>")
				doc.Object[i].write(b)
				if done[i].marker {
					b.text("DeleteMarker", "true")
					b.text("DeleteMarkerVersionId", done[i].version)
				}
				b.raw("</Deleted>")
			}
		}
	})
}

func (e *deleteEntry) write(b *xmlBuffer) {
	b.text("Key", e.Key)
	if e.VersionId != nil {
		b.text("VersionId", *e.VersionId)
	}
}

// parseDelete parses the XML document of a DeleteObjects request, which lists the objects to delete. It fails at the
// first unknown element, and if the list has more than maxDeletes objects.
func parseDelete(body []byte) (*deleteDocument, *Error) {
	d := newXMLReader(body)
	if name, err := d.root(); err != nil || name != "Delete" {
		return nil, malformed(cmp.Or(err, errors.New("it is no Delete")))
	}
	var doc deleteDocument
	keys := 0
	err := d.children(func(name string) (err error) {
		switch name {
		case "Quiet":
			doc.Quiet, err = d.bool()
		case "Object":
			if len(doc.Object) == maxDeletes {
				return fmt.Errorf("it has more than %d objects", maxDeletes)
			}
			e := deleteEntry{writeCondition: writeCondition{deletes: true}}
			err = d.children(func(name string) (err error) {
				switch name {
				case "Key":
					e.Key, err = d.text()
				case "VersionId":
					var id string
					id, err = d.text()
					e.VersionId = &id
				case "ETag":
					if e.match != "" {
						return errors.New("an object has two ETags")
					}
					if e.match, err = d.text(); err == nil && e.match == "" {
						err = errors.New("an ETag is empty")
					}
					e.present = true
				case "Size":
					text, err := d.text()
					return cmp.Or(err, e.setSize(text))
				case "LastModifiedTime":
					text, err := d.text()
					return cmp.Or(err, e.setModified(text))
				default:
					err = notImplemented("DeleteObjects with " + name)
				}
				return err
			})
			if keys += len(e.Key) + len(e.match); err == nil && keys > maxDeletes*maxKeyBytes+maxXMLToken {
				err = errors.New("its keys and ETags are too long")
			}
			doc.Object = append(doc.Object, e)
		default:
			err = fmt.Errorf("%s is not known", name)
		}
		return err
	})
	if err == nil && len(doc.Object) == 0 {
		err = fmt.Errorf("it has no objects: 1 to %d", maxDeletes)
	}
	if err != nil {
		return nil, malformed(err)
	}
	return &doc, nil
}

func (h *Handler) deleteOne(x *exchange, in *versioned, e *deleteEntry) (removed, error) {
	if e.VersionId != nil && *e.VersionId == "" {
		e.VersionId = nil
	}
	switch {
	case e.Key == "":
		return removed{}, refuse(http.StatusBadRequest, "UserKeyMustBeSpecified",
			"The bucket POST must contain the specified field name. If it is specified, check the order of the fields.")
	case len(e.Key) > maxKeyBytes:
		return removed{}, refuse(http.StatusBadRequest, "KeyTooLongError", "Your key has %d bytes: at most %d.", len(e.Key), maxKeyBytes)
	case in == nil && e.VersionId != nil && *e.VersionId != nullVersion:
		return removed{}, refuse(http.StatusNotFound, "NoSuchVersion",
			"The specified version does not exist: buckets have no versions here, only %q.", nullVersion)
	case !x.who.mayKeys(x.bucket, e.Key):
		return removed{}, accessDenied("The access key is limited to other buckets or prefixes.")
	}
	if in != nil {
		return h.remove(x, in, e.Key, e.writeCondition, e.VersionId)
	}
	return removed{}, h.change(x, nil, e.Key, e.writeCondition,
		func(b Bucket) error { return b.Delete(x.ctx(), []byte(e.Key)) })
}

// hasDigest reports whether the headers h of a request have a digest of the body, or announce a trailer with a digest.
func hasDigest(h http.Header) bool {
	for name := range h {
		if digests[name] != nil {
			return true
		}
	}
	return strings.HasPrefix(strings.ToLower(h.Get("X-Amz-Trailer")), "x-amz-checksum-")
}
