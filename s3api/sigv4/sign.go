package sigv4

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// Sign signs a request by its Authorization header, which is set in r.Header
// beside X-Amz-Date and X-Amz-Content-Sha256. payload stands for the body. All
// headers that r.Header has by then are signed.
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

// Presign returns the signature of a presigned URL, whose parameters but for the
// signature are in r.Query already; the host is the only header that is signed.
func Presign(r *Request, secret, region string, now time.Time) (string, error) {
	canonical, err := r.canonicalSum("host", UnsignedPayload)
	if err != nil {
		return "", err
	}
	scope := Scope{Date: now.UTC().Format(dateFormat), Region: region}
	return sign(signingKey(secret, scope), now, scope, canonical), nil
}

// PayloadOf is what stands for a body that is at hand.
func PayloadOf(body []byte) string { return hexSum(string(body)) }
