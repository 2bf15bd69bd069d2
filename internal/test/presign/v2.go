package presign

import (
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"slices"
	"strings"
)

// SignatureV2 returns the signature of version 2 of a request. date is the value of the header Date, the parameter
// Expires of a presigned URL, or empty for a request with x-amz-date. resource is the path, with the bucket first, and
// the signed parameters. headers are pairs of names and values.
func SignatureV2(secret, method, date, resource string, headers ...string) string {
	sums, kinds, amz := "", "", []string(nil)
	for i := 0; i < len(headers); i += 2 {
		switch name := strings.ToLower(headers[i]); {
		case name == "content-md5":
			sums = headers[i+1]
		case name == "content-type":
			kinds = headers[i+1]
		case strings.HasPrefix(name, "x-amz-"):
			amz = append(amz, name+":"+headers[i+1]+"\n")
		}
	}
	slices.SortFunc(amz, func(a, b string) int {
		return strings.Compare(a[:strings.IndexByte(a, ':')], b[:strings.IndexByte(b, ':')])
	})
	h := hmac.New(sha1.New, []byte(secret))
	h.Write([]byte(method + "\n" + sums + "\n" + kinds + "\n" + date + "\n" + strings.Join(amz, "") + resource))
	return base64.StdEncoding.EncodeToString(h.Sum(nil))
}
