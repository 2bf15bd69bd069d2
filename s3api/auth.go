package s3api

import (
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/s3api/sigv4"
)

// authenticate finds out who asks and verifies the signature. Without keys
// nobody is authenticated: whatever signature there is, is not looked at.
func (h *Handler) authenticate(x *exchange) *Error {
	x.who = allKeys
	if h.o.Keys == nil {
		return h.refusePages(x)
	}
	path, query := splitTarget(x.r)
	signed := &sigv4.Request{Method: x.r.Method, Path: path, Query: query, Host: x.r.Host, Header: x.r.Header, Length: x.r.ContentLength}
	claim, err := sigv4.Parse(signed)
	if err != nil {
		return h.refuseSignature(err)
	}
	if claim == nil {
		return accessDenied("This server takes signed requests only.")
	}
	x.keyID = claim.KeyID
	if claim.Scope.Region != h.o.Region && x.op.name != getBucketLocation {
		// GetBucketLocation is how clients learn of the region.
		e := refuse(http.StatusBadRequest, "AuthorizationHeaderMalformed", "The authorization header is malformed; the region '%s' is wrong; expecting '%s'", claim.Scope.Region, h.o.Region)
		if claim.Presigned {
			e.Code, e.Message = "AuthorizationQueryParametersError", "Error parsing the X-Amz-Credential parameter; the region '"+claim.Scope.Region+"' is wrong; expecting '"+h.o.Region+"'"
		}
		e.Detail = Header{"Region", h.o.Region}
		return e
	}
	key := h.o.Keys.Key(claim.KeyID)
	if key == nil {
		return refuse(http.StatusForbidden, "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records.")
	}
	if err := claim.CheckTime(h.o.Now()); err != nil {
		return h.refuseSignature(err)
	}
	chain, err := claim.Verify(signed, key.Secret)
	if err != nil {
		return h.refuseSignature(err)
	}
	x.who = key
	x.payload = payload{stands: claim.Payload, chain: chain}
	x.payload.open = !h.o.AllowUnsignedPayload && x.r.TLS == nil && !fromLoopback(x.r) && !coversBody(claim, x.r.Header)
	return nil
}

// refusePages refuses what a page in somebody's browser may have sent: where keys are asked
// for it has none.
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

// fromLoopback reports whether a request came over a connection that doesn't leave
// the machine. Headers of proxies don't count: anybody can send them.
func fromLoopback(r *http.Request) bool {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && from.Addr().IsLoopback()
}

// strongDigests are headers by which nobody can find another body. (That two bodies
// can be made for one MD5 or SHA-1 is no help to whoever has seen one of them.)
var strongDigests = []string{"content-md5", "x-amz-checksum-sha1", "x-amz-checksum-sha256"}

// coversBody reports whether the request is good for one body only: the signature
// covers the body, its chunks, or a header with its digest.
func coversBody(claim *sigv4.Claim, header http.Header) bool {
	if claim.Payload != sigv4.UnsignedPayload && claim.Payload != sigv4.UnsignedChunksTrailer {
		return true
	}
	return slices.ContainsFunc(strongDigests, func(name string) bool {
		return header.Get(name) != "" && claim.Signs(name)
	})
}

// statusOf the codes of package sigv4; the others are 400.
var statusOf = map[string]int{
	"AccessDenied": http.StatusForbidden, "SignatureDoesNotMatch": http.StatusForbidden, "RequestTimeTooSkewed": http.StatusForbidden,
	"NotImplemented": http.StatusNotImplemented,
}

func (h *Handler) refuseSignature(err error) *Error {
	var e *sigv4.Error
	if !errors.As(err, &e) {
		return fromStore(err, false)
	}
	status := statusOf[e.Code]
	setDefault(&status, http.StatusBadRequest)
	return refuse(status, e.Code, "%s", e.Message)
}

func accessDenied(format string, args ...any) *Error {
	return refuse(http.StatusForbidden, "AccessDenied", "Access Denied. "+format, args...)
}

// scope is what an operation touches.
type scope int

const (
	onService scope = iota // the operation shows what the key may see
	inBucket               // the bucket itself, for whoever may do anything in it
	onBucket               // all of the bucket
	onListing              // the keys with the query's prefix
	onKey                  // the key
	inBody                 // the operation looks at every key that it is given
)

// authorize says whether the key is good for what is asked.
func (x *exchange) authorize() *Error {
	k := x.who
	if x.op.write && !k.Write {
		return accessDenied("The access key is read-only.")
	}
	may := true
	switch x.op.scope {
	case inBucket, inBody:
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

// lowerHoisted makes headers of what a presigned URL has as parameters in their
// place.
func lowerHoisted(r *http.Request, query url.Values) {
	for name, values := range query {
		canonical := http.CanonicalHeaderKey(name)
		if !strings.HasPrefix(canonical, "X-Amz-") || signatureParams[canonical] || r.Header.Get(canonical) != "" {
			continue
		}
		r.Header[canonical] = values
	}
}

// signatureParams are the parameters of the signature itself.
var signatureParams = map[string]bool{
	"X-Amz-Algorithm": true, "X-Amz-Credential": true, "X-Amz-Date": true, "X-Amz-Expires": true, "X-Amz-Signedheaders": true,
	"X-Amz-Signature": true, "X-Amz-Security-Token": true,
}
