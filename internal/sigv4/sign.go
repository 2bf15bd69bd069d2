package sigv4

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// Sign signs the request r with all headers in r.Header, and sets the headers Authorization, X-Amz-Date and
// X-Amz-Content-Sha256. keyID and secret are the access key, and now is the time of the signature. payload is the text
// that stands for the body in the signature: a constant of this package, such as UnsignedPayload, or the result of
// PayloadOf.
func Sign(r *Request, keyID, secret, region, payload string, now time.Time) error {
	now = now.UTC()
	r.Header.Set("X-Amz-Date", now.Format(timeFormat))
	r.Header.Set(headerPayload, payload)
	signed := []string{"host"}
	for name := range r.Header {
		if name != http.CanonicalHeaderKey("Authorization") {
			signed = append(signed, strings.ToLower(name))
		}
	}
	slices.Sort(signed)
	names := strings.Join(signed, ";")
	canonical, err := r.canonicalSum(names, payload)
	if err != nil {
		return err
	}
	scope := Scope{Date: now.Format(dateFormat), Region: region}
	r.Header.Set("Authorization", Algorithm+" Credential="+keyID+"/"+scope.String()+", SignedHeaders="+names+
		", Signature="+sign(signingKey(secret, scope), now, scope, canonical))
	return nil
}

// PayloadOf returns the SHA-256 of a body in hexadecimal digits, for the argument payload of Sign. A signature that
// contains this text covers the body.
func PayloadOf(body []byte) string { return hexSum(string(body)) }
