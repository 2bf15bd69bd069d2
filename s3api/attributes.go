package s3api

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/evenkeel/evenkeel/objects"
)

// These are the names of the attributes of an object that GetObjectAttributes can return. The answer has them in this
// order.
const (
	attributeETag     = "ETag"
	attributeChecksum = "Checksum"
	attributeParts    = "ObjectParts"
	attributeClass    = "StorageClass"
	attributeSize     = "ObjectSize"
)

// attributesAsked returns the names of the attributes of an object that the client wants, from the header
// x-amz-object-attributes. The header is a list separated by commas, and may be sent several times. An unknown name is
// an error.
func attributesAsked(header http.Header) ([]string, *Error) {
	asked := elements(strings.Join(header.Values("X-Amz-Object-Attributes"), ","))
	known := []string{attributeETag, attributeChecksum, attributeParts, attributeClass, attributeSize}
	bad := func(name string) bool { return !slices.Contains(known, name) }
	if len(asked) == 0 || slices.ContainsFunc(asked, bad) {
		return nil, invalidArgument("Invalid attribute name specified: x-amz-object-attributes is a list of %s.",
			strings.Join(known, ", "))
	}
	return asked, nil
}

// getAttributes serves the operation GetObjectAttributes: it answers with those attributes of an object for which the
// client asks.
func (h *Handler) getAttributes(x *exchange) error {
	if _, err := h.objectsIn(x); err != nil {
		return err
	}
	asked, refusal := attributesAsked(x.r.Header)
	if refusal != nil {
		return refusal
	}
	limit, refusal := count(x.r.Header.Get("X-Amz-Max-Parts"), "x-amz-max-parts", maxPartsPage)
	if refusal != nil {
		return refusal
	}
	limit = min(limit, maxPartsPage)
	marker, refusal := count(x.r.Header.Get("X-Amz-Part-Number-Marker"), "x-amz-part-number-marker", 0)
	if refusal != nil {
		return refusal
	}
	if refusal := h.beginWith(x, pageMemory(maxPartsPage)); refusal != nil {
		return refusal
	}
	in, i, err := h.version(x)
	if err != nil {
		return err
	}
	wants := func(name string) bool { return slices.Contains(asked, name) }
	var parts []objects.Part
	if wants(attributeParts) && i.Parts > 0 {
		if _, parts, err = in.Parts(x.ctx(), []byte(x.key), i.ID); err != nil {
			return err
		}
	}
	in.tell(x, &i)
	x.w.Header().Set("Last-Modified", i.Modified().Format(http.TimeFormat))
	return x.writeDocument("GetObjectAttributesResponse", func(b *xmlBuffer) {
		if wants(attributeETag) {
			b.text("ETag", i.ETag())
		}
		if wants(attributeChecksum) && len(i.Meta().Sums) > 0 {
			b.raw("<Checksum>")
			b.sums(i.Meta().Sums)
			b.sumsType(i.Meta().Sums)
			b.raw("</Checksum>")
		}
		if len(parts) > 0 {
			b.parts(parts, marker, limit)
		}
		if wants(attributeClass) {
			b.text("StorageClass", "STANDARD")
		}
		if wants(attributeSize) {
			b.text("ObjectSize", strconv.FormatInt(i.Size, 10))
		}
	})
}

// parts appends an ObjectParts element, which lists parts of an object that was uploaded in parts. The parameter all
// has all parts of the object. The element has only those whose numbers are above marker, and at most limit of them.
func (x *xmlBuffer) parts(all []objects.Part, marker, limit int) {
	page := all
	for len(page) > 0 && page[0].Number <= marker {
		page = page[1:]
	}
	truncated := len(page) > limit
	page = page[:min(len(page), limit)]
	x.raw("<ObjectParts>")
	x.text("PartsCount", strconv.Itoa(len(all)))
	x.text("PartNumberMarker", strconv.Itoa(marker))
	if len(page) > 0 {
		x.text("NextPartNumberMarker", strconv.Itoa(page[len(page)-1].Number))
	}
	x.text("MaxParts", strconv.Itoa(limit))
	x.text("IsTruncated", strconv.FormatBool(truncated))
	for i := range page {
		x.raw("<Part>")
		x.text("PartNumber", strconv.Itoa(page[i].Number))
		x.text("Size", strconv.FormatInt(page[i].Size, 10))
		x.sums(page[i].Sums)
		x.raw("</Part>")
	}
	x.raw("</ObjectParts>")
}
