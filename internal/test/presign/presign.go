// Package presign signs presigned URLs for tests. The package shares no code with internal/sigv4.
package presign

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/internal/sigv4"
)

// Signature returns the signature of a presigned URL. r.Query must have all other parameters of the URL. The signature
// covers the host header only.
func Signature(r *sigv4.Request, secret, region string, at time.Time) (string, error) {
	path, err := url.PathUnescape(r.Path)
	if err != nil {
		return "", err
	}
	query, err := url.ParseQuery(r.Query)
	if err != nil {
		return "", err
	}
	for _, values := range query {
		slices.Sort(values)
	}
	canonical := strings.Join([]string{r.Method, escapePath(path),
		strings.ReplaceAll(query.Encode(), "+", "%20"), "host:" + r.Host, "", "host", "UNSIGNED-PAYLOAD"}, "\n")
	sum := sha256.Sum256([]byte(canonical))
	at = at.UTC()
	key := []byte("AWS4" + secret)
	scope := []string{at.Format("20060102"), region, "s3", "aws4_request"}
	for _, part := range scope {
		key = mac(key, part)
	}
	return hex.EncodeToString(mac(key, "AWS4-HMAC-SHA256\n"+at.Format("20060102T150405Z")+"\n"+strings.Join(scope, "/")+
		"\n"+hex.EncodeToString(sum[:]))), nil
}

func escapePath(path string) string {
	return strings.NewReplacer("+", "%20", "%2F", "/").Replace(url.QueryEscape(path))
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}
