package s3api

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/internal/keytext"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// Buckets has those methods of a listing client that a Handler needs, which create, delete, find and list buckets. Over
// makes a Buckets from a *listing.Client.
type Buckets interface {
	CreateBucket(ctx context.Context, name string, cuts ...[]byte) error
	DeleteBucket(ctx context.Context, name string) error
	Buckets(ctx context.Context, prefix, after string) iter.Seq2[listing.BucketInfo, error]
	Bucket(name string) Bucket
}

// Bucket has those methods of a plain bucket that a Handler needs. The entries of a plain bucket are keys with metadata
// or small bodies.
type Bucket interface {
	Put(ctx context.Context, key, value []byte) error
	Get(ctx context.Context, key []byte) (listing.Entry, error)
	Delete(ctx context.Context, key []byte) error
	DeleteRangeUntil(ctx context.Context, from, to []byte, until time.Time) (next []byte, err error)
	List(ctx context.Context, q listing.Query) (listing.Page, error)
	SplitPoints(ctx context.Context, q listing.Query, n int) ([][]byte, error)
	Settings(ctx context.Context) ([]byte, error)
}

// Over returns the listing client c as the interface Buckets, which the function New needs.
func Over(c *listing.Client) Buckets { return client{c} }

// client is a listing client as a Buckets. Its method Bucket returns the interface Bucket.
type client struct{ *listing.Client }

func (c client) Bucket(name string) Bucket { return c.Client.Bucket(name) }

const (
	// maxConfigurationBytes is the largest size in bytes of a CreateBucketConfiguration and of other documents with
	// settings.
	maxConfigurationBytes = 64 << 10
	// maxCutsBytes is the largest size in bytes of the list of keys at which a CreateBucket request divides the new
	// bucket.
	maxCutsBytes = 4 << 20
)

// oldestRegion is the first region of S3, and the default region of a Handler. Some answers of S3 have another form in
// this region.
const oldestRegion = "us-east-1"

// createBucket serves the operation CreateBucket. If the body of the request has a list of keys, called cuts, the new
// bucket is divided into ranges at these keys. A LocationConstraint in the body has no effect, as there is one
// location.
func (h *Handler) createBucket(x *exchange) error {
	var cuts [][]byte
	if x.query.Has(paramCuts) {
		body, refusal := h.receive(x, maxCutsBytes, forCuts)
		if refusal != nil {
			return refusal
		}
		var err error
		if cuts, err = keytext.ParseLines(body, h.o.MaxCuts); errors.Is(err, keytext.ErrTooManyLines) {
			return tooManyCuts(h.o.MaxCuts)
		} else if err != nil {
			return invalidArgument("The cuts: %v.", err)
		}
		if refusal := h.cuts.take(x.asker, len(cuts), float64(cutsHours*h.o.MaxCuts), h.o.Now()); refusal != nil {
			return refusal
		}
	} else {
		// Without cuts the body changes nothing, and minio-go doesn't sign it.
		x.payload.open = false
		body, refusal := h.receive(x, maxConfigurationBytes, asDocument)
		if refusal != nil {
			return refusal
		}
		if refusal := checkConfiguration(body); refusal != nil {
			return refusal
		}
	}
	create := h.buckets.CreateBucket
	switch kind := x.r.Header.Get(headerKind); {
	case kind != "" && kind != kindPlain && kind != kindObjects:
		return invalidArgument("%s is %s or %s, not %q.", headerKind, kindPlain, kindObjects, kind)
	case kind == kindObjects && h.o.Objects == nil:
		return notImplemented("buckets of objects")
	case kind != kindPlain && h.o.Objects != nil:
		create = h.o.Objects.CreateBucket
	}
	err := create(x.ctx(), x.bucket, cuts...)
	// In S3's oldest region creating an existing bucket succeeds, and programs rely on that. A request with a kind or
	// with cuts gets the error.
	again := h.o.Region == oldestRegion && cuts == nil && x.r.Header.Get(headerKind) == ""
	if err != nil && !(again && errors.Is(err, listing.ErrBucketExists)) {
		return err
	}
	x.w.Header().Set("Location", "/"+x.bucket)
	return nil
}

// checkConfiguration returns an error if body, the XML document of a CreateBucket request, asks for a feature that is
// not implemented. It accepts an empty body and a LocationConstraint.
func checkConfiguration(body []byte) *Error {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil
	}
	var c struct {
		XMLName            xml.Name `xml:"CreateBucketConfiguration"`
		LocationConstraint string
		Others             []struct{ XMLName xml.Name } `xml:",any"`
	}
	if err := xml.Unmarshal(body, &c); err != nil {
		return refuse(http.StatusBadRequest, "MalformedXML", "The XML you provided is not a CreateBucketConfiguration: %v.",
			err)
	}
	if len(c.Others) > 0 {
		return notImplemented("CreateBucket with " + c.Others[0].XMLName.Local)
	}
	return nil
}

// forCuts returns the memory in bytes that a CreateBucket request takes for a list of cuts: for the list, and for the
// map of ranges made from it. Cuts are keys at which the bucket is divided. n is the length of the list in bytes.
func forCuts(n int64) int64 { return 4*n + 1<<20 }

func (h *Handler) deleteBucket(x *exchange) error {
	in, err := h.objectsOf(x.ctx(), x.bucket)
	switch {
	case errors.Is(err, listing.ErrNoSuchBucket) && h.o.Objects != nil, err == nil && in != nil: // perhaps half deleted
		err = h.o.Objects.DeleteBucket(x.ctx(), x.bucket)
	case errors.Is(err, listing.ErrNoSuchBucket), err == nil:
		err = h.buckets.DeleteBucket(x.ctx(), x.bucket)
	}
	if errors.Is(err, listing.ErrNoSuchBucket) || errors.Is(err, store.InvalidArgument) {
		if refusal := checkBucketName(x.bucket); refusal != nil {
			return refusal
		}
	}
	return x.done(http.StatusNoContent, err)
}

// exists returns an error if the bucket that the request names does not exist, or if the bucket can't be read.
func (h *Handler) exists(x *exchange) error {
	_, err := h.buckets.Bucket(x.bucket).List(x.ctx(), listing.Query{Limit: 1, Bytes: smallBytes, KeysOnly: true})
	return err
}

// existing returns the bucket of objects that the request names. For a plain bucket, whose entries are keys with
// metadata and small bodies, it returns nil and no error. It returns an error if the bucket does not exist.
func (h *Handler) existing(x *exchange) (*versioned, error) {
	if err := h.exists(x); err != nil {
		return nil, err
	}
	return h.objectsOf(x.ctx(), x.bucket)
}

func (h *Handler) headBucket(x *exchange) error {
	in, err := h.existing(x)
	if err != nil {
		return err
	}
	kind := kindPlain
	if in != nil {
		kind = kindObjects
	}
	x.w.Header().Set("X-Amz-Bucket-Region", h.o.Region)
	x.w.Header().Set(headerKind, kind)
	return nil
}

func (h *Handler) getBucketLocation(x *exchange) error {
	if err := h.exists(x); err != nil {
		return err
	}
	return x.writeDocument("LocationConstraint", func(b *xmlBuffer) {
		if h.o.Region != oldestRegion { // it has no name here
			b.b = appendXMLText(b.b, h.o.Region)
		}
	})
}

// found returns an error if the object that the request names does not exist. For a request without a key, it returns
// an error if the bucket does not exist.
func (h *Handler) found(x *exchange) error {
	if x.key == "" {
		return h.exists(x)
	}
	in, err := h.objectsOf(x.ctx(), x.bucket)
	if err != nil {
		return err
	}
	if in != nil {
		id, err := in.named(x.ctx(), x.key, x.query)
		if err == nil {
			_, err = in.head(x, x.key, id, x.query.Get("versionId"))
		}
		return x.noVersion(err)
	}
	if refusal := checkVersion(x.query); refusal != nil {
		return refusal
	}
	_, err = h.load(x, x.bucket, x.key)
	return err
}

// putAcl serves requests that set an access control list. It accepts the list "private", and refuses every other list.
// It changes nothing, as all buckets and objects are private.
func (h *Handler) putAcl(x *exchange) error {
	if refusal := x.privateOnly(); refusal != nil {
		return refusal
	}
	return h.found(x)
}

// getAcl answers with the access control list of a bucket or an object. As all of them are private, the owner has full
// control, and nobody else has any access.
func (h *Handler) getAcl(x *exchange) error {
	if err := h.found(x); err != nil {
		return err
	}
	return x.writeDocument("AccessControlPolicy", func(b *xmlBuffer) {
		b.raw(ownerXML)
		b.raw(`<AccessControlList><Grant><Grantee xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" ` +
			`xsi:type="CanonicalUser">` + ownerParts +
			"</Grantee><Permission>FULL_CONTROL</Permission></Grant></AccessControlList>")
	})
}

// privateOnly returns an error if the access control list in the request is not "private". The list is in a header or
// in the request's XML document.
func (x *exchange) privateOnly() *Error {
	body, refusal := x.h.receive(x, maxConfigurationBytes, asDocument)
	if refusal != nil {
		return refusal
	}
	named := x.r.Header.Get("X-Amz-Acl") != "" // refusedHeader has refused all values but private
	private := named && len(body) == 0
	if !named && len(body) > 0 {
		if private, refusal = isPrivate(body); refusal != nil {
			return refusal
		}
	}
	if !private {
		return notImplemented(x.op.name +
			" with other than private: x-amz-acl: private, or FULL_CONTROL for the owner and nothing else")
	}
	return nil
}

// isPrivate reports whether the XML document body is the access control list "private", as getAcl sends it. Clients
// send this document when they copy the list of one object to another. isPrivate returns an error for a document that
// is not an access control list.
func isPrivate(body []byte) (private bool, refusal *Error) {
	type others []struct{ XMLName xml.Name }
	var p struct {
		XMLName xml.Name `xml:"AccessControlPolicy"`
		Owner   struct{ ID string }
		List    struct {
			Grant []struct {
				Grantee struct {
					ID          string
					DisplayName string
					Others      others `xml:",any"`
				}
				Permission string
				Others     others `xml:",any"`
			}
			Others others `xml:",any"`
		} `xml:"AccessControlList"`
		Others others `xml:",any"`
	}
	if err := xml.Unmarshal(body, &p); err != nil {
		return private, refuse(http.StatusBadRequest, "MalformedACLError",
			"The XML you provided was not well-formed or did not validate against our published schema: %v.", err)
	}
	if len(p.List.Grant) != 1 || len(p.Others)+len(p.List.Others) > 0 {
		return false, nil
	}
	g := &p.List.Grant[0]
	return p.Owner.ID == ownerID && g.Grantee.ID == ownerID && g.Permission == "FULL_CONTROL" &&
		len(g.Others)+len(g.Grantee.Others) == 0, nil
}

const (
	ownerID    = "evenkeel"
	ownerParts = "<ID>" + ownerID + "</ID><DisplayName>" + ownerID + "</DisplayName>"
	ownerXML   = "<Owner>" + ownerParts + "</Owner>"
	// maxBucketsPage is the largest value of the parameter max-buckets, as in S3.
	maxBucketsPage = 10_000
	// headerKind is the header that has the kind of a bucket (plain or objects), in requests of CreateBucket and
	// answers of HeadBucket.
	headerKind = "X-Evenkeel-Bucket-Kind"
	// kindPlain and kindObjects are the kinds of buckets. A plain bucket has keys with metadata and small bodies. A
	// bucket of objects has objects with versions and bodies of any size.
	kindPlain, kindObjects = "plain", "objects"
	// bucketsChunk is the size in bytes of the pieces in which a list of all buckets is sent.
	bucketsChunk = 256 << 10
	// bucketsToken is a text that is part of the checksum of each continuation token of ListBuckets, so that no token
	// of another listing is accepted. The position in the token is the name of the last bucket.
	bucketsToken = "ListBuckets"
	// writeTime is the time that a client has to read one piece of a list of buckets.
	writeTime = 30 * time.Second
	// listBucketsMemory is the memory in bytes for one piece of a list of buckets, and for the pages that are read
	// ahead from the store.
	listBucketsMemory = 1 << 20
)

// listBuckets answers with the list of all buckets that the access key may see. If the request has the parameter
// max-buckets, the answer is one page of the list. The document is sent in pieces, as a store may have a million
// buckets.
func (h *Handler) listBuckets(x *exchange) error {
	limit, after, refusal := bucketsPage(x)
	if refusal != nil {
		return refusal
	}
	if refusal := h.beginWith(x, listBucketsMemory); refusal != nil {
		return refusal
	}
	buckets := h.visible(x, x.query.Get("prefix"), after)
	if region := x.query.Get("bucket-region"); region != "" && region != h.o.Region {
		buckets = func(func(listing.BucketInfo, error) bool) {}
	}
	b := newXML()
	defer b.free()
	b.root("ListAllMyBucketsResult")
	b.raw(ownerXML)
	b.raw("<Buckets>")
	next, last, n := "", "", 0
	for info, err := range buckets {
		if err != nil {
			return err
		}
		if limit > 0 && n == limit {
			next = last
			break
		}
		n++
		last = info.Name
		b.raw("<Bucket>")
		b.text("Name", info.Name)
		b.time("CreationDate", info.Created)
		b.raw("</Bucket>")
		if len(b.b) > bucketsChunk {
			if err := x.writePart(b); err != nil {
				return err
			}
		}
	}
	b.raw("</Buckets>")
	if next != "" {
		b.text("ContinuationToken", sealToken([]byte(next), []byte(bucketsToken), []byte(x.query.Get("prefix"))))
	}
	if p := x.query.Get("prefix"); p != "" {
		b.text("Prefix", p)
	}
	b.close("ListAllMyBucketsResult")
	if x.status != 0 {
		return x.write(b.b)
	}
	return x.writeXML(http.StatusOK, b)
}

// visible iterates over the buckets that the access key may see, in the order of their names. Only buckets whose names
// begin with prefix, and are greater than the name `after`, are yielded.
func (h *Handler) visible(x *exchange, prefix, after string) iter.Seq2[listing.BucketInfo, error] {
	if x.who.Everything {
		return h.buckets.Buckets(x.ctx(), prefix, after)
	}
	var names []string
	for _, only := range x.who.Only {
		if name, _, _ := strings.Cut(only, "/"); strings.HasPrefix(name, prefix) && name > after {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return func(yield func(listing.BucketInfo, error) bool) {
		for _, name := range slices.Compact(names) {
			for info, err := range h.buckets.Buckets(x.ctx(), name, "") {
				if (err != nil || info.Name == name) && !yield(info, err) {
					return
				}
				break // the later names only begin with this name
			}
		}
	}
}

// bucketsPage reads the parameters that select one page of a list of buckets. The results are:
//   - limit: the largest number of buckets in the page, or 0 without a limit
//   - after: the name of the last bucket of the previous page, or ""
//   - refusal: the error answer for a wrong parameter
func bucketsPage(x *exchange) (limit int, after string, refusal *Error) {
	if s := x.query.Get("max-buckets"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > maxBucketsPage {
			return limit, after, invalidArgument("Argument max-buckets must be an integer between 1 and %d.", maxBucketsPage)
		}
		limit = n
	}
	if s := x.query.Get("continuation-token"); s != "" {
		name, ok := openToken(s, []byte(bucketsToken), []byte(x.query.Get("prefix")))
		if !ok || len(name) == 0 {
			return limit, after, badToken()
		}
		after = string(name)
	}
	return limit, after, nil
}

// writePart sends the content of b to the client as the next piece of a long answer, and then empties b. The client has
// the time writeTime (30 s) to read each piece.
func (x *exchange) writePart(b *xmlBuffer) error {
	if x.status == 0 {
		x.w.Header().Set("Content-Type", "application/xml")
		x.writeHeader(http.StatusOK)
	}
	err := http.NewResponseController(x.w).SetWriteDeadline(time.Now().Add(writeTime))
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	err = x.write(b.b)
	b.b = b.b[:0]
	return err
}
