package sigv4

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"maps"
	"net/http"
	"net/mail"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// These are names and prefixes by which version 2 of AWS signatures is recognised. A presigned URL has its signature in
// the three query parameters.
const (
	paramKeyIDV2     = "AWSAccessKeyId"
	paramSignatureV2 = "Signature"
	paramExpiresV2   = "Expires"

	// prefixV2 is the beginning of a header Authorization of version 2.
	prefixV2 = "AWS "

	prefixAmz = "x-amz-"
)

// signedParamsV2 are the query parameters that a signature of version 2 covers: those that name a sub-resource, and
// those that override headers of the answer. Later parameters of S3, and those of evenkeel, are not among them.
var signedParamsV2 = map[string]bool{
	"accelerate": true, "acl": true, "analytics": true, "cors": true, "defaultObjectAcl": true, "delete": true,
	"inventory": true, "lifecycle": true, "location": true, "logging": true, "metrics": true, "notification": true,
	"object-lock": true, "partNumber": true, "policy": true, "replication": true, "requestPayment": true,
	"response-cache-control": true, "response-content-disposition": true, "response-content-encoding": true,
	"response-content-language": true, "response-content-type": true, "response-expires": true, "restore": true,
	"select": true, "select-type": true, "storageClass": true, "tagging": true, "torrent": true, "uploadId": true,
	"uploads": true, "versionId": true, "versioning": true, "versions": true, "website": true,
}

// isV2 reports whether a request has a presigned URL of version 2, judged by the parameters in its query.
func isV2(query url.Values) bool {
	return query.Has(paramKeyIDV2) || query.Has(paramSignatureV2)
}

// parseHeaderV2 returns the claim of a request that is signed by version 2: what the request states about its
// signature. The parameter value is the request's header Authorization, AWS KEY-ID:SIGNATURE. The signature is not
// verified yet.
func parseHeaderV2(r *Request, value string) (*Claim, error) {
	c := &Claim{Version: 2}
	text := strings.TrimSpace(strings.TrimPrefix(value, prefixV2))
	if colon := strings.LastIndexByte(text, ':'); colon > 0 {
		c.KeyID, c.signature = text[:colon], text[colon+1:]
	}
	if c.KeyID == "" || c.signature == "" {
		return nil, refuse("InvalidArgument", "AWS authorization header is invalid.  Expected AwsAccessKeyId:signature")
	}
	if err := c.finishV2(r, nil); err != nil {
		return nil, err
	}
	date, found := c.headers[strings.ToLower(paramDate)]
	if !found {
		date = c.headers["date"]
	}
	var err error
	if c.Time, err = parseDate(date); err != nil {
		return nil, refuse("AccessDenied", "AWS authentication requires a valid Date or x-amz-date header")
	}
	return c, nil
}

// parseDate parses the time of a request, in one of three forms: that of HTTP, that of mail (with a numeric zone), or
// that of version 4. A number of seconds, which a presigned URL has in place of a date, is an error.
func parseDate(value string) (time.Time, error) {
	if t, err := time.Parse(timeFormat, value); err == nil {
		return t, nil
	}
	if t, err := http.ParseTime(value); err == nil {
		return t, nil
	}
	return mail.ParseDate(value)
}

// parseQueryV2 returns the claim of a presigned URL of version 2: what its query states about its signature. The
// signature is not verified yet.
func parseQueryV2(r *Request, query url.Values) (*Claim, error) {
	c := &Claim{Version: 2, Presigned: true}
	for name, to := range map[string]*string{
		paramKeyIDV2: &c.KeyID, paramSignatureV2: &c.signature, paramExpiresV2: &c.until,
	} {
		if values := query[name]; len(values) == 1 {
			*to = values[0]
		}
	}
	if c.KeyID == "" || c.signature == "" || c.until == "" {
		return nil, refuse("AccessDenied",
			"Query-string authentication requires the Signature, Expires and AWSAccessKeyId parameters, each once.")
	}
	seconds, err := strconv.ParseInt(c.until, 10, 40)
	if err != nil {
		return nil, refuse("AccessDenied", "Invalid date (should be seconds since epoch): %.64q", c.until)
	}
	c.ends = time.Unix(seconds, 0)
	return c, c.finishV2(r, query)
}

// finishV2 finds the headers that the signature covers, and stores them in the claim. query has the parameters of a
// presigned URL, and is nil otherwise. finishV2 returns an error if the request has a header that must be signed and
// that a signature of version 2 can't cover.
func (c *Claim) finishV2(r *Request, query url.Values) error {
	for name := range r.Header {
		if name = strings.ToLower(name); strings.HasPrefix(name, "x-evenkeel-") {
			return refuse("AccessDenied", "There were headers present in the request which were not signed: %s. "+
				"Signatures of version 2 do not cover it: please use %s.", name, Algorithm)
		}
	}
	if err := c.collectV2(r.Header, query); err != nil {
		return err
	}
	if c.headers[strings.ToLower(paramToken)] != "" {
		return noTokens()
	}
	switch c.Payload = cmp.Or(c.headers[strings.ToLower(headerPayload)], UnsignedPayload); {
	case c.Payload == SignedChunks || c.Payload == SignedChunksTrailer:
		return refuse("InvalidRequest",
			"The chunks of a body can't be signed by a signature of version 2: please use %s.", Algorithm)
	case !validPayload(c.Payload):
		return badPayload(c.Payload)
	}
	return nil
}

// collectV2 stores in the claim the headers that a signature of version 2 covers. They come from h, the headers of the
// request, or from the query of a presigned URL: some query parameters stand for headers that h does not have. It
// returns an error for a name or a value that no header can have. With a colon or a line feed in it, a header could
// have the same canonical form as another header or as two.
func (c *Claim) collectV2(h http.Header, query url.Values) error {
	c.headers = map[string]string{}
	for name, values := range h {
		if !isToken(name) {
			return badName(name)
		}
		if name = strings.ToLower(name); !c.Signs(name) {
			continue
		}
		if !strings.HasPrefix(name, prefixAmz) {
			values = values[:min(len(values), 1)]
		}
		value := joined(values)
		if strings.ContainsAny(value, "\r\n") {
			return refuse("InvalidArgument", "The header %s has a line feed.", name)
		}
		c.headers[name] = value
	}
	if query == nil {
		return nil
	}
	hoisted, err := Hoisted(query)
	if err != nil {
		return err
	}
	for canonical, values := range hoisted {
		if h.Get(canonical) == "" {
			c.headers[strings.ToLower(canonical)] = values[0]
		}
	}
	return nil
}

// joined returns the values of all header lines of one name as one value: without blanks and tabs at their ends, and
// separated by commas.
func joined(values []string) string {
	trimmed := make([]string, len(values))
	for i, v := range values {
		trimmed[i] = strings.Trim(v, " \t")
	}
	return strings.Join(trimmed, ",")
}

// Hoisted returns the headers for which parameters in the query of a presigned URL stand. In a URL of version 2 each
// value is the text that is signed. Hoisted returns an *Error for a parameter whose name no header can have, and for
// two names that differ in case only. In a URL of version 2 a parameter that is there twice, or whose value has a
// control character, is an error, too.
func Hoisted(query url.Values) (http.Header, error) {
	v2 := isV2(query)
	headers := http.Header{}
	for name, values := range query {
		if !v2 && !strings.HasPrefix(lowerASCII(name), prefixAmz) || v2 && !HoistedV2(name) {
			continue
		}
		if !isToken(name) {
			return nil, badName(name)
		}
		canonical := http.CanonicalHeaderKey(name)
		if headers[canonical] != nil || v2 && len(values) != 1 {
			return nil, refuse("InvalidArgument", "The parameter %s is there more than once.", strings.ToLower(name))
		}
		if v2 {
			if strings.ContainsFunc(values[0], func(b rune) bool { return b < ' ' || b == 0x7F }) {
				return nil, refuse("InvalidArgument", "The parameter %s has a control character.",
					strings.ToLower(name))
			}
			values = []string{joined(values)}
		}
		headers[canonical] = values
	}
	return headers, nil
}

func badName(name string) error {
	return refuse("InvalidArgument", "No header can have the name %.64q.", name)
}

// isToken reports whether name is a token of HTTP, as the names of headers are. All characters of a token are ASCII.
func isToken(name string) bool {
	const others = "!#$%&'*+-.^_`|~"
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && !strings.ContainsRune(others, r)
	})
}

// lowerASCII returns s with its ASCII letters in lower case. strings.ToLower would also make ASCII letters of two other
// characters, the Kelvin sign and the capital I with a dot.
func lowerASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}

// HoistedV2 reports whether a query parameter of a presigned URL of version 2 stands for a header of the same name. The
// case of the name's ASCII letters does not matter.
func HoistedV2(name string) bool {
	name = lowerASCII(name)
	return strings.HasPrefix(name, prefixAmz) || name == "content-md5" || name == "content-type"
}

// SignsParam reports whether the signature covers the query parameter with the given name. Signatures of version 4
// cover all query parameters.
func (c *Claim) SignsParam(name string) bool { return c.Version != 2 || signedParamsV2[name] }

// checkTimeV2 returns an error if a presigned URL of version 2 is not valid at the time now: it has expired, or expires
// more than a week ahead. Such a URL does not say when it was made. So only its remaining time can be limited, and not
// its whole time.
func (c *Claim) checkTimeV2(now time.Time) error {
	switch {
	case !now.Before(c.ends):
		return refuse("AccessDenied", "Request has expired: it was good until %s, the server says %s.",
			c.ends.UTC().Format(timeFormat), now.UTC().Format(timeFormat))
	case c.ends.Sub(now) > MaxExpires+MaxSkew:
		return refuse("AccessDenied", "Expires must be less than a week ahead: it says %s, the server %s.",
			c.ends.UTC().Format(timeFormat), now.UTC().Format(timeFormat))
	}
	return nil
}

// verifyV2 returns an error if the claim does not have the signature of version 2 that the secret of the access key
// gives.
func (c *Claim) verifyV2(r *Request, secret string) error {
	paths := []string{r.Path}
	if r.Bucket == "" && len(r.Path) > 1 && !strings.Contains(r.Path[1:], "/") {
		paths = append(paths, r.Path+"/") // SDKs of AWS sign a bucket with a slash that they do not send
	}
	for _, path := range paths {
		text, err := c.canonicalV2(r, path)
		if err != nil {
			return err
		}
		h := hmac.New(sha1.New, []byte(secret))
		h.Write([]byte(text))
		if hmac.Equal([]byte(base64.StdEncoding.EncodeToString(h.Sum(nil))), []byte(c.signature)) {
			return nil
		}
	}
	return mismatch()
}

// hidesParams reports whether value, the decoded value of a signed query parameter, contains the text of another signed
// parameter, e.g. "x&versionId=7". A signature of version 2 covers decoded values. So a URL with this value has the
// same signature as a URL with both parameters. Somebody could change one into the other, and so drop the parameter
// versionId.
func hidesParams(value string) bool {
	parts := strings.Split(value, "&")
	return slices.ContainsFunc(parts[1:], func(part string) bool {
		name, _, _ := strings.Cut(part, "=")
		return signedParamsV2[name]
	})
}

// canonicalV2 returns the text from which a signature of version 2 is computed: the method, the signed headers, the
// path, and those parameters that are in signedParamsV2. The path is encoded as the client has sent it, with the bucket
// of the host name before it. The values of the parameters are decoded.
// https://docs.aws.amazon.com/AmazonS3/latest/API/RESTAuthentication.html
func (c *Claim) canonicalV2(r *Request, path string) (string, error) {
	query, err := url.ParseQuery(r.Query)
	if err != nil {
		return "", refuse("InvalidURI", "The query can't be parsed: %v.", err)
	}
	date := c.until
	if _, other := c.headers[strings.ToLower(paramDate)]; date == "" && !other {
		date = c.headers["date"]
	}
	var b strings.Builder
	for _, part := range []string{r.Method, c.headers["content-md5"], c.headers["content-type"], date} {
		b.WriteString(part + "\n")
	}
	for _, name := range slices.Sorted(maps.Keys(c.headers)) {
		if strings.HasPrefix(name, prefixAmz) {
			b.WriteString(name + ":" + c.headers[name] + "\n")
		}
	}
	if r.Bucket != "" {
		b.WriteString("/" + escape(r.Bucket)) // unlike a bucket in the path it is not encoded
	}
	b.WriteString(path)
	separator := "?"
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if !signedParamsV2[name] {
			continue
		}
		for _, value := range query[name] {
			if hidesParams(value) {
				return "", refuse("InvalidArgument",
					"The value of the parameter %s looks like several parameters.", name)
			}
			b.WriteString(separator + name)
			if value != "" {
				b.WriteString("=" + value)
			}
			separator = "&"
		}
	}
	return b.String(), nil
}
