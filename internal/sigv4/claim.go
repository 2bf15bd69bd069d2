package sigv4

import (
	"crypto/hmac"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Names of the query parameters in which a presigned URL has its signature, and of the header with the text that stands
// for the body.
const (
	paramAlgorithm  = "X-Amz-Algorithm"
	paramCredential = "X-Amz-Credential"
	paramDate       = "X-Amz-Date"
	paramExpires    = "X-Amz-Expires"
	paramSigned     = "X-Amz-SignedHeaders"
	paramSignature  = "X-Amz-Signature"
	paramPayload    = "X-Amz-Content-Sha256"
	paramToken      = "X-Amz-Security-Token"

	headerPayload = "X-Amz-Content-Sha256"
)

// Error is the reason why a signature is refused. Code is an error code of S3, such as SignatureDoesNotMatch.
type Error struct{ Code, Message string }

func (e *Error) Error() string { return e.Code + ": " + e.Message }

func refuse(code, format string, args ...any) *Error {
	return &Error{code, fmt.Sprintf(format, args...)}
}

// Claim is what a request states about its own signature: the access key, the scope (date and region), the time and the
// signed headers. The statements may be false until Verify has succeeded.
type Claim struct {
	// Version is the version of the signature: 4, or the older 2, which has no scope.
	Version int
	KeyID   string
	Scope   Scope
	// Time is the time at which the request was signed. A presigned URL of version 2 does not say it.
	Time time.Time
	// Presigned is true if the request uses a presigned URL, whose query has the signature. A URL of version 4 is valid
	// from Time on, for the duration Expires.
	Presigned bool
	Expires   time.Duration
	// Payload is the text that stands for the body in the signature: one of the constants of this package, or the
	// SHA-256 of the body in hexadecimal digits.
	Payload string

	signed    string // names of the signed headers, separated by semicolons
	signature string
	malformed string // the error code for a claim that is malformed
	// Of version 4: the headers for which parameters of a presigned URL stand. The signature covers all parameters.
	hoisted http.Header

	// Of version 2: the values of the signed headers by their names in lower case, and when a presigned URL ends, also
	// as the URL says it.
	headers map[string]string
	ends    time.Time
	until   string
}

// Parse returns what a request states about its signature, in its headers or its query. For a request without a
// signature it returns nil and no error. It does not verify the signature. Any error is an *Error.
func Parse(r *Request) (*Claim, error) {
	query, err := url.ParseQuery(r.Query)
	if err != nil {
		return nil, refuse("InvalidURI", "The query can't be parsed: %v.", err)
	}
	header := r.Header.Get("Authorization")
	inQuery := query.Has(paramAlgorithm) || query.Has(paramCredential) || query.Has(paramSignature)
	switch {
	case header != "" && (inQuery || isV2(query)), inQuery && isV2(query):
		return nil, refuse("InvalidArgument",
			"Only one auth mechanism allowed; only the X-Amz-Algorithm query parameter, Signature query string parameter or "+
				"the Authorization header should be specified.")
	case isV2(query):
		return parseQueryV2(r, query)
	case strings.HasPrefix(header, prefixV2):
		return parseHeaderV2(r, header)
	case header == "" && !inQuery:
		return nil, nil
	case query.Has(paramToken) || r.Header.Get(paramToken) != "":
		return nil, noTokens()
	case inQuery:
		return parseQuery(r, query)
	}
	return parseHeader(r, header)
}

func noTokens() *Error {
	return refuse("InvalidToken",
		"The provided token is malformed or otherwise invalid: there are no session tokens here.")
}

func parseHeader(r *Request, value string) (*Claim, error) {
	algorithm, rest, _ := strings.Cut(value, " ")
	switch {
	case algorithm == Algorithm:
	case strings.HasPrefix(algorithm, "AWS4-"):
		return nil, refuse("NotImplemented", "This server does not implement signatures by %s.", algorithm)
	default:
		return nil, refuse("InvalidArgument", "Unsupported Authorization Type")
	}
	c := &Claim{Version: 4, malformed: "AuthorizationHeaderMalformed"}
	parts := map[string]string{"Credential": "", "SignedHeaders": "", "Signature": ""}
	for part := range strings.SplitSeq(rest, ",") {
		name, value, found := strings.Cut(strings.TrimSpace(part), "=")
		if !found || parts[name] != "" {
			return nil, c.bad("a part of it is not NAME=VALUE, or is there twice")
		}
		if _, known := parts[name]; known {
			parts[name] = value
		}
	}
	for _, name := range []string{"Credential", "SignedHeaders", "Signature"} {
		if parts[name] == "" {
			return nil, c.bad("%s is missing", name)
		}
	}
	if err := c.credential(parts["Credential"]); err != nil {
		return nil, err
	}
	var err error
	if at := r.Header.Get("X-Amz-Date"); at != "" {
		c.Time, err = time.Parse(timeFormat, at)
	} else {
		c.Time, err = http.ParseTime(r.Header.Get("Date"))
	}
	if err != nil {
		return nil, refuse("AccessDenied", "AWS authentication requires a valid Date or x-amz-date header")
	}
	if c.Payload = r.Header.Get(headerPayload); c.Payload == "" {
		return nil, refuse("InvalidRequest", "Missing required header for this request: x-amz-content-sha256")
	}
	return c, c.finish(r, parts["SignedHeaders"], parts["Signature"])
}

func parseQuery(r *Request, query url.Values) (*Claim, error) {
	c := &Claim{Version: 4, Presigned: true, malformed: "AuthorizationQueryParametersError"}
	for _, name := range []string{paramAlgorithm, paramCredential, paramDate, paramExpires, paramSigned, paramSignature} {
		if query.Get(name) == "" {
			return nil, refuse(c.malformed,
				"Query-string authentication version 4 requires the %s parameter, with X-Amz-Algorithm, X-Amz-Credential, "+
					"X-Amz-Signature, X-Amz-Date, X-Amz-SignedHeaders and X-Amz-Expires.", name)
		}
	}
	switch algorithm := query.Get(paramAlgorithm); {
	case algorithm == Algorithm:
	case strings.HasPrefix(algorithm, "AWS4-"):
		return nil, refuse("NotImplemented", "This server does not implement signatures by %s.", algorithm)
	default:
		return nil, refuse(c.malformed, "X-Amz-Algorithm only supports %q", Algorithm)
	}
	if err := c.credential(query.Get(paramCredential)); err != nil {
		return nil, err
	}
	var err error
	if c.Time, err = time.Parse(timeFormat, query.Get(paramDate)); err != nil {
		return nil, refuse(c.malformed, "X-Amz-Date must be in the ISO8601 Long Format \"yyyyMMdd'T'HHmmss'Z'\"")
	}
	seconds, err := strconv.ParseUint(query.Get(paramExpires), 10, 31)
	if err != nil {
		return nil, refuse(c.malformed, "X-Amz-Expires should be a number, not negative")
	}
	if c.Expires = time.Duration(seconds) * time.Second; c.Expires > MaxExpires {
		return nil, refuse(c.malformed,
			"X-Amz-Expires must be less than a week (in seconds); that is, the given X-Amz-Expires must be less than %d seconds",
			MaxExpires/time.Second)
	}
	if c.hoisted, err = Hoisted(query); err != nil {
		return nil, err
	}
	c.Payload = UnsignedPayload
	if p := query.Get(paramPayload); p != "" {
		c.Payload = p
	} else if p := r.Header.Get(headerPayload); p != "" {
		c.Payload = p
	}
	return c, c.finish(r, query.Get(paramSigned), query.Get(paramSignature))
}

// bad returns the error for a request whose statements about its signature are malformed. format and args, as for
// fmt.Sprintf, say what is wrong.
func (c *Claim) bad(format string, args ...any) *Error {
	if c.Presigned {
		return refuse(c.malformed, "Error parsing the X-Amz-Credential parameter; "+format, args...)
	}
	return refuse(c.malformed, "The authorization header is malformed; "+format, args...)
}

// credential parses value, which names the access key and the scope of a signature, in the form
// KEY-ID/DATE/REGION/s3/aws4_request. It sets the fields KeyID and Scope of the claim. The key's ID may contain
// slashes.
func (c *Claim) credential(value string) error {
	var parts [4]string // the last ones
	for i := len(parts) - 1; i >= 0; i-- {
		slash := strings.LastIndexByte(value, '/')
		if slash < 0 {
			return c.bad("the Credential is mal-formed; expecting \"<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request\"")
		}
		value, parts[i] = value[:slash], value[slash+1:]
	}
	c.KeyID = value
	c.Scope = Scope{Date: parts[0], Region: parts[1]}
	switch {
	case c.KeyID == "":
		return c.bad("a non-empty Access Key (AKID) must be provided in the credential")
	case parts[2] != service:
		return c.bad("incorrect service %q. This endpoint belongs to %q", parts[2], service)
	case parts[3] != terminator:
		return c.bad("incorrect terminal %q. This endpoint uses %q", parts[3], terminator)
	}
	return nil
}

// finish stores the signature in the claim, and the list of the names of signed headers, which is the argument signed.
// It returns an error if a header of r that must be signed is not in the list, or if the date or the text for the body
// is wrong.
func (c *Claim) finish(r *Request, signed, signature string) error {
	c.signature, c.signed = signature, signed
	if what := badNames(signed); what != "" {
		return refuse(c.malformed, "SignedHeaders has %s.", what)
	}
	if c.Time.UTC().Format(dateFormat) != c.Scope.Date {
		return c.bad("invalid credential date %q. This date is not the same as X-Amz-Date: %q", c.Scope.Date,
			c.Time.UTC().Format(dateFormat))
	}
	if !validPayload(c.Payload) {
		return badPayload(c.Payload)
	}
	covered := map[string]bool{}
	for name := range strings.SplitSeq(signed, ";") {
		covered[name] = true
	}
	if !covered["host"] {
		return refuse("AccessDenied", "There were headers present in the request which were not signed: host")
	}
	for name := range r.Header {
		name = strings.ToLower(name)
		if mustBeSigned(name) && !covered[name] {
			return refuse("AccessDenied", "There were headers present in the request which were not signed: %s", name)
		}
	}
	return nil
}

// badNames returns what is wrong with signed, a list of names of signed headers, or "" for a good list. The names must
// be in ascending order without duplicates. A header is hashed each time that it is named, so repeated names of a long
// header would cost much.
func badNames(signed string) string {
	if strings.Count(signed, ";") >= MaxSignedHeaders {
		return fmt.Sprintf("more than %d names", MaxSignedHeaders)
	}
	last := ""
	for name := range strings.SplitSeq(signed, ";") {
		if name <= last || name != strings.ToLower(name) {
			return "names that are not in lower case and in ascending order, each once"
		}
		last = name
	}
	return ""
}

// Signs reports whether the signature covers the header with the given name, which must be in lower case, or the query
// parameter that stands for the header.
func (c *Claim) Signs(name string) bool {
	if c.Version == 2 {
		return HoistedV2(name) || name == "date"
	}
	for signed := range strings.SplitSeq(c.signed, ";") {
		if signed == name {
			return true
		}
	}
	return c.hoisted[http.CanonicalHeaderKey(name)] != nil // any other such header must be signed
}

// SetSigned gives each header in h, the headers of the claim's request, the one value that the signature covers.
// Several lines of one name have the same signature as one line with their values joined by commas. So somebody who
// does not have the access key could change one into the other: e.g. cut a key with a comma in it.
func (c *Claim) SetSigned(h http.Header) {
	for name, value := range c.headers {
		h[http.CanonicalHeaderKey(name)] = []string{value}
	}
	for name := range strings.SplitSeq(c.signed, ";") {
		if canonical := http.CanonicalHeaderKey(name); len(h[canonical]) > 1 {
			h[canonical] = []string{joined(h[canonical])}
		}
	}
}

// mustBeSigned reports whether a signature must cover the header with the given name, which is in lower case. All
// headers that change the meaning of a request must be signed, so that only the signer can add them. The exception is
// x-amz-content-sha256, whose value is part of every signature.
func mustBeSigned(name string) bool {
	return (strings.HasPrefix(name, "x-amz-") || strings.HasPrefix(name, "x-evenkeel-")) && name != "x-amz-content-sha256"
}

func badPayload(p string) *Error {
	if strings.HasPrefix(p, "STREAMING-") {
		return refuse("NotImplemented", "This server does not implement x-amz-content-sha256: %s.", p)
	}
	return refuse("InvalidArgument", "x-amz-content-sha256 must be %s, %s, %s, %s, or a valid sha256 value.",
		UnsignedPayload, UnsignedChunksTrailer, SignedChunks, SignedChunksTrailer)
}

func validPayload(p string) bool {
	return p == UnsignedPayload || p == SignedChunks || p == SignedChunksTrailer || p == UnsignedChunksTrailer ||
		IsDigest(p)
}

// IsDigest reports whether p has the form of a SHA-256, which is 64 lower-case hexadecimal digits. A Claim.Payload
// without this form is a constant of this package, such as UnsignedPayload.
func IsDigest(p string) bool {
	return len(p) == 64 && strings.Trim(p, "0123456789abcdef") == ""
}

// CheckTime returns an error if the time at which the request was signed differs from now, the server's time, by more
// than MaxSkew. A presigned URL may be older, but now must be within its validity. Any error is an *Error.
func (c *Claim) CheckTime(now time.Time) error {
	if c.Version == 2 && c.Presigned {
		return c.checkTimeV2(now)
	}
	ahead := c.Time.Sub(now)
	switch {
	case !c.Presigned && (ahead > MaxSkew || ahead < -MaxSkew):
		return refuse("RequestTimeTooSkewed",
			"The difference between the request time and the server's time is too large: the request says %s, the server %s.",
			c.Time.UTC().Format(timeFormat), now.UTC().Format(timeFormat))
	case c.Presigned && ahead > MaxSkew:
		return refuse("AccessDenied", "Request is not valid yet: it says %s, the server %s.", c.Time.UTC().Format(timeFormat),
			now.UTC().Format(timeFormat))
	case c.Presigned && now.After(c.Time.Add(c.Expires)):
		return refuse("AccessDenied", "Request has expired: it was good for %d seconds from %s on, the server says %s.",
			c.Expires/time.Second, c.Time.UTC().Format(timeFormat), now.UTC().Format(timeFormat))
	}
	return nil
}

// Verify returns an error if the signature in the claim is not the signature that the secret of the access key makes
// for the request. It compares in constant time. The returned Chain verifies the chunks of the body, if they are
// signed. It is nil for a signature of version 2, which can't sign chunks. Any error is an *Error.
func (c *Claim) Verify(r *Request, secret string) (*Chain, error) {
	if c.Version == 2 {
		return nil, c.verifyV2(r, secret)
	}
	canonical, err := r.canonicalSum(c.signed, c.Payload)
	if err != nil {
		return nil, refuse("InvalidURI", "The URI can't be parsed: %v.", err)
	}
	key := signingKey(secret, c.Scope)
	want := sign(key, c.Time, c.Scope, canonical)
	if !hmac.Equal([]byte(want), []byte(c.signature)) {
		return nil, mismatch()
	}
	return &Chain{key: key, at: c.Time, scope: c.Scope, last: want}, nil
}

func mismatch() *Error {
	return refuse("SignatureDoesNotMatch",
		"The request signature we calculated does not match the signature you provided. Check your key and signing method.")
}
