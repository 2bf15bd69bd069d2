package s3api

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
)

const (
	// minPartBytes is the smallest size in bytes that S3 allows for a part of an upload, except for the last part.
	minPartBytes = 5 << 20
	// maxPartsBytes is the largest size in bytes of the document that completes an upload. The document names all
	// parts, with a checksum of each part.
	maxPartsBytes = 4 << 20
	// maxPartsPage is the largest number of parts, or of uploads, in one page of a listing.
	maxPartsPage = 1000
)

// objectsIn returns the bucket that the request names, for an operation that only buckets of objects support. It
// returns an error for a plain bucket, whose entries are keys with metadata and small bodies.
func (h *Handler) objectsIn(x *exchange) (*versioned, error) {
	in, err := h.objectsOf(x.ctx(), x.bucket)
	if err == nil && in == nil {
		err = notOperation(x.op.name)
	}
	return in, err
}

// upload returns the ID of the multipart upload that a request names. If the request has no valid ID, the result is an
// ID that no upload has. The operation then answers with S3's error NoSuchUpload.
func (x *exchange) upload() objects.UploadID {
	id, err := objects.ParseUploadID(x.query.Get("uploadId"))
	if err != nil {
		id.Stamp = 1 // no upload began at that time
	}
	return id
}

func noSuchUpload() *Error {
	return refuse(http.StatusNotFound, "NoSuchUpload", "The specified upload does not exist. The upload ID may be invalid, "+
		"or the upload may have been aborted or completed.")
}

// uploadErrors is a list of the errors of package objects about multipart uploads, each with a function that returns
// S3's error answer for the error.
var uploadErrors = []struct {
	is     error
	answer func() *Error
}{
	{objects.ErrNoSuchUpload, noSuchUpload},
	{objects.ErrInvalidPart, func() *Error {
		return refuse(http.StatusBadRequest, "InvalidPart", "One or more of the specified parts could not be found. The "+
			"part may not have been uploaded, or the specified entity tag may not match the part's entity tag.")
	}},
	{objects.ErrPartOrder, func() *Error {
		return refuse(http.StatusBadRequest, "InvalidPartOrder", "The list of parts was not in ascending order. Parts must "+
			"be ordered by part number.")
	}},
}

func (h *Handler) createUpload(x *exchange) error {
	in, err := h.objectsIn(x)
	if err != nil {
		return err
	}
	if refusal := x.checkNewKey(); refusal != nil {
		return refusal
	}
	o, refusal := h.describeNew(x.r)
	if refusal != nil {
		return refusal
	}
	m := o.meta()
	if m.Tags, refusal = x.tagsOf(); refusal != nil {
		return refusal
	}
	if m.Sums, refusal = newChecksum(x.r.Header); refusal != nil {
		return refusal
	}
	u, err := in.CreateUpload(x.ctx(), []byte(x.key), m)
	if err != nil {
		return err
	}
	if c := checksumOf(&u); c.name != "" {
		x.w.Header().Set(headerAlgorithm, checksumNames[c.name])
		x.w.Header().Set(headerChecksumType, c.kind())
	}
	return x.writeDocument("InitiateMultipartUploadResult", func(b *xmlBuffer) {
		b.text("Bucket", x.bucket)
		b.text("Key", x.key)
		b.text("UploadId", u.ID.String())
	})
}

// part returns what a request about a part of a multipart upload names. The results are:
//   - in: the bucket of objects
//   - id: the ID of the upload
//   - n: the number of the part
func (h *Handler) part(x *exchange) (in *versioned, id objects.UploadID, n int, err error) {
	if in, err = h.objectsIn(x); err == nil {
		n, err = x.partNumber()
	}
	return in, x.upload(), n, err
}

func (x *exchange) partNumber() (int, error) {
	n, err := strconv.Atoi(x.query.Get("partNumber"))
	if err != nil || n < 1 || n > care.MaxParts {
		return 0, invalidArgument("Part number must be an integer between 1 and %d, inclusive.", care.MaxParts)
	}
	return n, nil
}

func (h *Handler) uploadPart(x *exchange) error {
	in, id, n, err := h.part(x)
	if err != nil {
		return err
	}
	// The upload is checked before the body arrives, which may be large.
	u, err := in.Upload(x.ctx(), []byte(x.key), id)
	if err != nil {
		return err
	}
	from, m, refusal := h.intake(x, checksumOf(&u).name)
	if refusal != nil {
		return refusal
	}
	p, err := in.PutPart(x.ctx(), []byte(x.key), id, n, from, m)
	if err != nil {
		return err
	}
	for _, s := range p.Sums {
		x.w.Header().Set(checksumPrefix+s.Name, s.Value)
	}
	x.w.Header().Set("ETag", quoted(p.ETag))
	return nil
}

// copyPart serves the operation UploadPartCopy: it makes a part of a multipart upload from an object, or from a range
// of the object's bytes.
func (h *Handler) copyPart(x *exchange) error {
	in, id, n, err := h.part(x)
	if err != nil {
		return err
	}
	from, refusal := x.copySource()
	if refusal != nil {
		return refusal
	}
	u, err := in.Upload(x.ctx(), []byte(x.key), id)
	if err != nil {
		return err
	}
	src, err := h.openSource(x, from)
	if err != nil {
		return err
	}
	defer src.close()
	body, size := io.Reader(src.body), src.Size
	if src.body == nil {
		if src.External {
			return refuse(http.StatusConflict, "ObjectBodyElsewhere", "The bytes of this object live elsewhere.")
		}
		body = bytes.NewReader(src.Body)
	}
	if values := x.r.Header[headerCopyRange]; len(values) > 0 {
		start, length, refusal := copyRange(values[0], src.Size)
		if refusal != nil {
			return refusal
		}
		size = length
		if src.named != nil && (start > 0 || length < src.Size) { // a read from the offset on
			got, err := src.named.Get(x.ctx(), []byte(from.key), src.id, objects.Range{Offset: start, N: length})
			if err != nil {
				return err
			}
			defer got.Body.Close()
			body = got.Body
		} else if src.named == nil {
			body = bytes.NewReader(src.Body[start : start+length])
		}
	}
	if refusal := h.checkCopied(size); refusal != nil {
		return refusal
	}
	if refusal := x.take(x.ctx(), streamBytes); refusal != nil {
		return refusal
	}
	body, sums := summing(body, checksumOf(&u).name)
	p, err := in.PutPart(x.ctx(), []byte(x.key), id, n, body, objects.Meta{Size: size, Sums: sums})
	if err != nil {
		return err
	}
	src.tell(x)
	return x.writeDocument("CopyPartResult", func(b *xmlBuffer) {
		b.time("LastModified", p.Modified)
		b.text("ETag", quoted(p.ETag))
		b.sums(p.Sums)
	})
}

const headerCopyRange = "X-Amz-Copy-Source-Range"

// copyRange parses value, the header with the range of an object's bytes that becomes a part of an upload. size is the
// size of the object in bytes. copyRange returns an error if the range is not within the object.
func copyRange(value string, size int64) (start, length int64, refusal *Error) {
	first, last, ok := strings.Cut(strings.TrimPrefix(value, "bytes="), "-")
	from, err1 := strconv.ParseUint(first, 10, 63)
	to, err2 := strconv.ParseUint(last, 10, 63)
	if !ok || !strings.HasPrefix(value, "bytes=") || err1 != nil || err2 != nil || from > to {
		return start, length, invalidArgument("The x-amz-copy-source-range value must be of the form bytes=first-last where first and " +
			"last are the zero-based offsets of the first and last bytes to copy")
	}
	if int64(to) >= size {
		return start, length, refuse(http.StatusRequestedRangeNotSatisfiable, "InvalidRange",
			"The range is not within the source, which has %d bytes.", size)
	}
	return int64(from), int64(to-from) + 1, nil
}

func (h *Handler) completeUpload(x *exchange) error {
	in, err := h.objectsIn(x)
	if err != nil {
		return err
	}
	id := x.upload()
	condition := readWriteCondition(x.r.Header)
	var newest objects.ID // when the condition was judged
	condition.overtaken = func(now objects.ID) bool {
		newest = now
		return false
	}
	want, refusal := completedBy(x.r.Header)
	if refusal != nil {
		return refusal
	}
	doc, refusal := h.receive(x, maxPartsBytes, forParts)
	if refusal != nil {
		return refusal
	}
	parts, refusal := parseParts(doc)
	if refusal != nil {
		return refusal
	}
	var i objects.Info
	err = h.change(x, in, x.key, condition, func(Bucket) (err error) {
		i, err = in.Complete(x.ctx(), []byte(x.key), id, parts, func(
			u objects.Upload, found []objects.Part,
		) ([]objects.Pair, error) {
			// The object's ID may be older than this request: drawn by an earlier attempt to complete the upload, or by
			// an older form of uploads. IDs sort newest first.
			if newest != objects.Latest && newest.String() < u.Version.String() { // newest first
				return nil, overtaken()
			}
			return want.check(&u, found, parts)
		})
		return err
	})
	if err != nil {
		return err
	}
	if refusal := want.compare(i.Meta().Sums); refusal != nil { // the upload had been completed before
		return refusal
	}
	in.tellNew(x, &i)
	in.tellExpiry(x, &i)
	return x.writeDocument("CompleteMultipartUploadResult", func(b *xmlBuffer) {
		b.text("Location", "/"+x.bucket+"/"+x.key)
		b.text("Bucket", x.bucket)
		b.text("Key", x.key)
		b.text("ETag", quoted(i.ETag()))
		b.sums(i.Meta().Sums)
		b.sumsType(i.Meta().Sums)
	})
}

// forParts returns the memory in bytes for the document that completes a multipart upload, and for the parts that the
// document names. n is the size of the document in bytes.
func forParts(n int64) int64 { return 5 * n }

// checkParts returns an error if the parts of a multipart upload can't make an object:
//   - a part other than the last part is too small, or
//   - a part does not have the checksum that the client claims.
//
// The parameter named has the parts as the client names them, in the same order as parts.
func checkParts(parts, named []objects.Part) error {
	for i := range parts {
		if p := &parts[i]; i < len(parts)-1 && p.Size < minPartBytes {
			return refuse(http.StatusBadRequest, "EntityTooSmall",
				"Your proposed upload is smaller than the minimum allowed size: part %d has %d bytes, at least %d.",
				p.Number, p.Size, minPartBytes)
		}
		for _, s := range named[i].Sums {
			if !slices.Contains(parts[i].Sums, s) {
				return objects.ErrInvalidPart
			}
		}
	}
	return nil
}

// parseParts parses the XML document of a CompleteMultipartUpload. It returns the parts that make up the object, each
// with its number, ETag and checksums as the client names them.
func parseParts(doc []byte) ([]objects.Part, *Error) {
	d := newXMLReader(doc)
	if name, err := d.root(); err != nil || name != "CompleteMultipartUpload" {
		return nil, malformed(cmp.Or(err, errors.New("it is no CompleteMultipartUpload")))
	}
	var parts []objects.Part
	lines := 0
	err := d.children(func(name string) error {
		if lines++; name != "Part" || lines > care.MaxParts {
			return fmt.Errorf("it has something else than 1 to %d parts", care.MaxParts)
		}
		var p objects.Part
		err := d.children(func(name string) error {
			text, err := d.text()
			switch name {
			case "PartNumber":
				if p.Number, err = strconv.Atoi(text); err == nil && (p.Number < 1 || p.Number > care.MaxParts) {
					err = fmt.Errorf("part %d: 1 to %d", p.Number, care.MaxParts)
				}
			case "ETag":
				p.ETag = strings.Trim(text, `"`)
			default:
				sum, checks := strings.CutPrefix(name, "Checksum")
				sum = strings.ToLower(sum)
				if _, known := checksumNames[sum]; !checks || !known || len(p.Sums) == len(checksumNames) {
					err = cmp.Or(err, fmt.Errorf("%s is not known", name))
				}
				p.Sums = append(p.Sums, objects.Pair{Name: sum, Value: text})
			}
			return err
		})
		if err == nil && p.Number == 0 {
			err = errors.New("a part has no number")
		}
		if n := len(parts); n > 0 && parts[n-1].Number == p.Number {
			parts = parts[:n-1] // uploaded twice, and the client noted both answers: the last one counts
		}
		parts = append(parts, p)
		return err
	})
	if err == nil && len(parts) == 0 {
		err = errors.New("it names no part")
	}
	if err != nil {
		return nil, malformed(err)
	}
	return parts, nil
}

func (h *Handler) abortUpload(x *exchange) error {
	in, err := h.objectsIn(x)
	if err != nil {
		return err
	}
	id := x.upload()
	if text := x.r.Header.Get(headerIfInitiated); text != "" {
		want, err := parseTime(text)
		if err != nil {
			return invalidArgument("%s: %s.", headerIfInitiated, err)
		}
		u, err := in.Upload(x.ctx(), []byte(x.key), id)
		if err != nil {
			return err
		}
		if !seconds(u.Created).Equal(seconds(want)) {
			return preconditionFailed(headerIfInitiated)
		}
	}
	return x.done(http.StatusNoContent, in.Abort(x.ctx(), []byte(x.key), id))
}

// pageSize returns how many parts or uploads a page of a listing may have, from the query parameter with the given
// name. A value above maxPartsPage becomes maxPartsPage.
func pageSize(x *exchange, name string) (int, *Error) {
	n, refusal := count(x.query.Get(name), name, maxPartsPage)
	return min(n, maxPartsPage), refusal
}

// count parses value, the number in the query parameter with the given name. It returns absent if value is empty, and
// an error if value is not a non-negative number.
func count(value, name string, absent int) (n int, refusal *Error) {
	if value == "" {
		return absent, nil
	}
	got, err := strconv.ParseInt(value, 10, 32)
	if err != nil || got < 0 {
		return n, invalidArgument("Argument %s must be an integer between 0 and 2147483647.", name)
	}
	return int(got), nil
}

func (h *Handler) listParts(x *exchange) error {
	limit, refusal := pageSize(x, "max-parts")
	if refusal != nil {
		return refusal
	}
	after, refusal := count(x.query.Get("part-number-marker"), "part-number-marker", 0)
	if refusal != nil {
		return refusal
	}
	if refusal := h.beginWith(x, pageMemory(limit)); refusal != nil {
		return refusal
	}
	in, err := h.objectsIn(x)
	if err != nil {
		return err
	}
	id := x.upload()
	u, err := in.Upload(x.ctx(), []byte(x.key), id)
	if err != nil {
		return err
	}
	parts, more, err := in.ListParts(x.ctx(), []byte(x.key), id, min(after, care.MaxParts), max(limit, 1))
	if err != nil {
		return err
	}
	if limit == 0 {
		parts, more = nil, false
	}
	return x.writeDocument("ListPartsResult", func(b *xmlBuffer) {
		b.text("Bucket", x.bucket)
		b.text("Key", x.key)
		b.text("UploadId", id.String())
		b.raw("<Initiator>" + ownerParts + "</Initiator>" + ownerXML)
		b.text("StorageClass", "STANDARD")
		b.text("PartNumberMarker", strconv.Itoa(after))
		if len(parts) > 0 {
			b.text("NextPartNumberMarker", strconv.Itoa(parts[len(parts)-1].Number))
		}
		b.text("MaxParts", strconv.Itoa(limit))
		b.text("IsTruncated", strconv.FormatBool(more))
		b.checksum(&u)
		for i := range parts {
			p := &parts[i]
			b.raw("<Part>")
			b.text("PartNumber", strconv.Itoa(p.Number))
			b.time("LastModified", p.Modified)
			b.text("ETag", quoted(p.ETag))
			b.text("Size", strconv.FormatInt(p.Size, 10))
			b.sums(p.Sums)
			b.raw("</Part>")
		}
	})
}

func (h *Handler) listUploads(x *exchange) error {
	limit, refusal := pageSize(x, "max-uploads")
	if refusal != nil {
		return refusal
	}
	l := listQuery{}
	l.Prefix, l.Delimiter = []byte(x.query.Get("prefix")), []byte(x.query.Get("delimiter"))
	if refusal := l.encoding(x.query); refusal != nil {
		return refusal
	}
	marker, idMarker := x.query.Get("key-marker"), x.query.Get("upload-id-marker")
	l.goBeyond(marker)
	q := objects.UploadQuery{Prefix: l.Prefix, Delimiter: l.Delimiter, After: []byte(marker)}
	switch {
	case l.beyond:
		q.After = beyondPrefix(q.After)
	case marker != "" && idMarker != "":
		id, err := objects.ParseUploadID(idMarker)
		if err != nil {
			return invalidArgument("Invalid uploadId marker.")
		}
		q.AfterID = id
	}
	if refusal := h.beginWith(x, pageMemory(limit)); refusal != nil {
		return refusal
	}
	in, err := h.objectsIn(x)
	if err != nil {
		return err
	}
	var items []objects.Upload
	var truncated bool
	for q.Limit = 1; ; { // one more than the page has, to see whether others follow
		q.Limit = limit - len(items) + 1
		page, err := in.ListUploads(x.ctx(), q)
		if err != nil {
			return err
		}
		items = append(items, page.Items...)
		if truncated = len(items) > limit; truncated || page.Next == "" {
			break
		}
		q.Token = page.Next
	}
	items, truncated = items[:min(len(items), limit)], truncated && limit > 0
	b := newXML()
	defer b.free()
	b.root("ListMultipartUploadsResult")
	b.text("Bucket", x.bucket)
	b.key("KeyMarker", []byte(marker), &l)
	b.text("UploadIdMarker", idMarker)
	if truncated {
		last := &items[len(items)-1]
		b.key("NextKeyMarker", last.Key, &l)
		if !last.CommonPrefix {
			b.text("NextUploadIdMarker", last.ID.String())
		}
	}
	b.key("Prefix", l.Prefix, &l)
	if len(l.Delimiter) > 0 {
		b.key("Delimiter", l.Delimiter, &l)
	}
	if l.urlEncoded {
		b.text("EncodingType", "url")
	}
	b.text("MaxUploads", strconv.Itoa(limit))
	b.text("IsTruncated", strconv.FormatBool(truncated))
	for i := range items {
		if u := &items[i]; !u.CommonPrefix {
			b.raw("<Upload>")
			b.key("Key", u.Key, &l)
			b.text("UploadId", u.ID.String())
			b.raw("<Initiator>" + ownerParts + "</Initiator>" + ownerXML)
			b.text("StorageClass", "STANDARD")
			b.time("Initiated", u.Created)
			b.checksum(u)
			b.raw("</Upload>")
		}
	}
	for i := range items {
		if items[i].CommonPrefix {
			b.raw("<CommonPrefixes>")
			b.key("Prefix", items[i].Key, &l)
			b.raw("</CommonPrefixes>")
		}
	}
	b.close("ListMultipartUploadsResult")
	return x.writeXML(http.StatusOK, b)
}

// partOf finds the part of an object that a read with the parameter partNumber asks for. The results are the metadata
// of the version, and the range of its bytes that was uploaded as this part. An object that was not uploaded in parts
// has one part, with the number 1.
func (v *versioned) partOf(x *exchange, id objects.ID) (objects.Info, objects.Range, error) {
	n, err := x.partNumber()
	if err != nil {
		return objects.Info{}, objects.Range{}, err
	}
	if x.r.Header.Get("Range") != "" {
		return objects.Info{}, objects.Range{}, invalidRequest(
			"Cannot specify both Range header and partNumber query parameter")
	}
	i, parts, err := v.Parts(x.ctx(), []byte(x.key), id)
	switch {
	case errors.Is(err, listing.ErrNotFound) || errors.Is(err, objects.ErrDeleted),
		err == nil && id != objects.Latest && !answersTo(&i, x.query.Get("versionId")):
		i, err = v.head(x, x.key, id, x.query.Get("versionId"))
		fallthrough
	case err != nil:
		return i, objects.Range{}, err
	case len(parts) == 0 && n == 1:
		return i, objects.Range{N: i.Size}, nil
	}
	part := objects.Range{}
	at := slices.IndexFunc(parts, func(p objects.Part) bool { return p.Number == n }) // numbers may have gaps
	if at < 0 {
		return i, objects.Range{}, refuse(http.StatusBadRequest, "InvalidPart",
			"The requested part number is not satisfiable: the object has no part %d.", n)
	}
	for _, p := range parts[:at] {
		part.Offset += p.Size
	}
	part.N = parts[at].Size
	if x.wantsSums() {
		x.tellSums(parts[at].Sums, i.Meta().Sums)
	}
	return i, part, nil
}
