package s3api

import (
	"cmp"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"

	"github.com/evenkeel/evenkeel/internal/sigv4"
)

// authenticate finds the access key that signed a request, and verifies the signature. A server without access keys
// accepts requests with any signature or none. It only refuses requests that a web page makes a browser send.
func (h *Handler) authenticate(x *exchange) *Error {
	x.who = allKeys
	if h.o.Keys == nil {
		return h.refusePages(x)
	}
	path, query := splitTarget(x.r)
	signed := &sigv4.Request{Method: x.r.Method, Path: path, Query: query, Host: x.r.Host, Header: x.r.Header,
		Length: x.r.ContentLength, Bucket: bucketOfHost(x.r.Host, h.o.HostSuffixes)}
	claim, err := sigv4.Parse(signed)
	if err != nil {
		return refuseSignature(err)
	}
	if claim == nil {
		return accessDenied("This server takes signed requests only.")
	}
	x.keyID, x.claim = claim.KeyID, claim
	if claim.Version == 2 && h.o.RefuseSignatureV2 {
		return invalidRequest("The authorization mechanism you have provided is not supported: this server refuses " +
			"signatures of version 2. Please use " + sigv4.Algorithm + ".")
	}
	if claim.Version != 2 && claim.Scope.Region != h.o.Region && x.op.name != getBucketLocation {
		// GetBucketLocation is allowed with a wrong region, as clients learn the region by it.
		code, what := "AuthorizationHeaderMalformed", "The authorization header is malformed"
		if claim.Presigned {
			code, what = "AuthorizationQueryParametersError", "Error parsing the X-Amz-Credential parameter"
		}
		e := refuse(http.StatusBadRequest, code, "%s; the region '%s' is wrong; expecting '%s'",
			what, claim.Scope.Region, h.o.Region)
		e.Details = []Header{{"Region", h.o.Region}}
		return e
	}
	key := h.o.Keys.Key(claim.KeyID)
	if key == nil {
		return refuse(http.StatusForbidden, "InvalidAccessKeyId",
			"The AWS Access Key Id you provided does not exist in our records.")
	}
	if claim.Version == 2 && key.V4Only {
		return invalidRequest("The authorization mechanism you have provided is not supported: the access key is not " +
			"for signatures of version 2. Please use " + sigv4.Algorithm + ".")
	}
	now := h.o.Now()
	if err := claim.CheckTime(now); err != nil {
		e := refuseSignature(err)
		if e.Code == tooSkewed { // clients correct their clocks by it
			e.Details = []Header{
				{"RequestTime", claim.Time.UTC().Format("20060102T150405Z")},
				{"ServerTime", now.UTC().Format("2006-01-02T15:04:05Z")},
				{"MaxAllowedSkewMilliseconds", strconv.FormatInt(sigv4.MaxSkew.Milliseconds(), 10)},
			}
		}
		return e
	}
	chain, err := claim.Verify(signed, key.Secret)
	if err != nil {
		return refuseSignature(err)
	}
	x.who = key
	x.payload = payload{stands: claim.Payload, chain: chain}
	return nil
}

// settle makes the headers of a request those that its signature covers, and finds the operation that they ask for. In
// a presigned URL, query parameters may stand for headers. On a server with access keys the signature must have been
// verified.
func (h *Handler) settle(x *exchange) *Error {
	if x.claim != nil {
		x.claim.SetSigned(x.r.Header)
	}
	if isPresigned(x.query) {
		if err := lowerHoisted(x.r, x.query); err != nil {
			return refuseSignature(err)
		}
		x.op = operationFor(x.r.Method, x.target, x.r.Header)
	}
	x.payload.open = x.claim != nil && !h.o.AllowUnsignedPayload && x.r.TLS == nil && !fromLoopback(x.r) &&
		!x.coversBody()
	return nil
}

// refuseUnsigned returns an error for a write with a parameter that its signature does not cover: somebody else may
// have added or changed the parameter. Reads may have such parameters, e.g. the prefix of a listing, as far as the
// access key allows what they ask for. Only signatures of version 2 leave parameters out.
func (x *exchange) refuseUnsigned() *Error {
	if x.claim == nil || !x.op.write {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(x.query)) {
		if (name == x.op.sub || slices.Contains(x.op.takes, name)) && !x.claim.SignsParam(name) {
			return invalidRequest("A signature of version 2 does not cover the parameter %s, by which %s writes: "+
				"please use %s.", name, x.op.name, sigv4.Algorithm)
		}
	}
	return nil
}

// refusePages returns an error for a request that a web page makes a browser send. On a server without access keys such
// a page could change data.
func (h *Handler) refusePages(x *exchange) *Error {
	if h.o.Guard == nil {
		return nil
	}
	if err := h.o.Guard.CheckHost(x.r); err != nil {
		return accessDenied("%v", err)
	}
	if err := h.o.Guard.CheckOrigin(x.r); err != nil {
		return accessDenied("%v; without access keys none may change anything", err)
	}
	return nil
}

// fromLoopback reports whether the client runs on the server's machine, judged by the address of the connection.
// Headers that proxies add, such as X-Forwarded-For, are ignored, as any client can send them.
func fromLoopback(r *http.Request) bool {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && from.Addr().IsLoopback()
}

// strongDigests are the headers whose digest protects a body from changes if the signature covers the header. An
// attacker would have to find another body with the same digest (a second preimage). Even MD5 and SHA-1 still prevent
// that.
var strongDigests = []string{"content-md5", "x-amz-checksum-sha1", "x-amz-checksum-sha256"}

// coversBody reports whether the signature of a request protects the body from changes. It does so if it covers the
// body itself, its chunks, or a header with a digest of the body. Checksums in the headers of a CompleteMultipartUpload
// are not of its body, but of the object.
func (x *exchange) coversBody() bool {
	if x.claim.Payload != sigv4.UnsignedPayload && x.claim.Payload != sigv4.UnsignedChunksTrailer {
		return true
	}
	return slices.ContainsFunc(strongDigests, func(name string) bool {
		ofObject := x.op.name == completeMultipartUpload && name != "content-md5"
		return x.r.Header.Get(name) != "" && x.claim.Signs(name) && !ofObject
	})
}

// statusOf maps error codes of refused signatures to HTTP statuses. An error code that is not in the map has the status
// 400.
var statusOf = map[string]int{
	"AccessDenied": http.StatusForbidden, "SignatureDoesNotMatch": http.StatusForbidden,
	tooSkewed:        http.StatusForbidden,
	"NotImplemented": http.StatusNotImplemented,
}

const tooSkewed = "RequestTimeTooSkewed"

// refuseSignature returns the error answer for err, the error of a refused signature.
func refuseSignature(err error) *Error {
	e := err.(*sigv4.Error) // they all are
	return refuse(cmp.Or(statusOf[e.Code], http.StatusBadRequest), e.Code, "%s", e.Message)
}

func accessDenied(format string, args ...any) *Error {
	return refuse(http.StatusForbidden, "AccessDenied", "Access Denied. "+format, args...)
}

// scope says what an operation uses, e.g. one key or a whole bucket. The access key of a request must be allowed to use
// it.
type scope int

const (
	onService scope = iota // no part: the operation shows only what the key may see
	inBucket               // any part of the bucket; DeleteObjects checks its keys itself
	onBucket               // all of the bucket
	onListing              // the keys with the query's prefix
	onKey                  // the key
)

// authorize returns an error if the access key of the request may not do the operation. The access key must be allowed
// to use the keys or buckets in the operation's scope.
func (x *exchange) authorize() *Error {
	k := x.who
	if x.op.write && !k.Write {
		return accessDenied("The access key is read-only.")
	}
	may := true
	switch x.op.scope {
	case inBucket:
		may = k.mayEnter(x.bucket)
	case onBucket:
		may = k.mayBucket(x.bucket)
	case onListing:
		may = k.mayKeys(x.bucket, x.query.Get("prefix"))
	case onKey:
		may = k.mayKeys(x.bucket, x.key)
	}
	if !may {
		return accessDenied("The access key is limited to other buckets or prefixes.")
	}
	return nil
}

// lowerHoisted adds headers to a request with a presigned URL, in which query parameters whose names begin with x-amz-
// stand for headers. In a URL with a signature of version 2, content-md5 and content-type do so, too. It does not
// change a header that the request already has. Any error is a *sigv4.Error.
func lowerHoisted(r *http.Request, query url.Values) error {
	hoisted, err := sigv4.Hoisted(query)
	if err != nil {
		return err
	}
	for name, values := range hoisted {
		if r.Header.Get(name) == "" {
			r.Header[name] = values
		}
	}
	return nil
}
