// Package sigv4 signs and verifies requests by AWS Signature Version 4, in S3's variant: paths
// are encoded once and not cleaned; a signature covers a body's digest, its chunks, or nothing
// of it.
// https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-authenticating-requests.html
//
// It does no I/O, and callers pass the time.
package sigv4

import (
	"bufio"
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// Algorithm is the only one that is supported.
	Algorithm = "AWS4-HMAC-SHA256"
	// MaxSkew is the largest difference between a request's time and the server's.
	MaxSkew = 15 * time.Minute
	// MaxExpires is the longest validity of a presigned URL.
	MaxExpires = 7 * 24 * time.Hour
	// MaxSignedHeaders is the most headers that a signature may cover. Headers of 8 KiB, the
	// most that AWS accepts, have fewer.
	MaxSignedHeaders = 512

	service    = "s3"
	terminator = "aws4_request"
	timeFormat = "20060102T150405Z"
	dateFormat = "20060102"
)

// Values that stand for the body, beside its SHA-256 in hexadecimal digits.
const (
	// UnsignedPayload: the signature does not cover the body.
	UnsignedPayload = "UNSIGNED-PAYLOAD"
	// SignedChunks: the body is aws-chunked, and each chunk is signed.
	SignedChunks = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
	// SignedChunksTrailer: the trailers are signed, too.
	SignedChunksTrailer = SignedChunks + "-TRAILER"
	// UnsignedChunksTrailer: aws-chunked with trailers, not signed.
	UnsignedChunksTrailer = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
)

// Request is the part of a request that a signature covers.
type Request struct {
	Method string
	// Path and Query are percent-encoded, as sent: Path begins with a slash, Query is without
	// the question mark.
	Path, Query string
	Host        string
	Header      http.Header
	// Length is that of the body; -1: unknown.
	Length int64
}

// Scope is the date and region that a signing key is valid for.
type Scope struct {
	Date   string // YYYYMMDD
	Region string
}

func (s Scope) String() string {
	return s.Date + "/" + s.Region + "/" + service + "/" + terminator
}

// signingKey derives the key of a scope.
func signingKey(secret string, s Scope) []byte {
	key := mac([]byte("AWS4"+secret), s.Date)
	for _, part := range []string{s.Region, service, terminator} {
		key = mac(key, part)
	}
	return key
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

func hexSum(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// sign returns the signature of a request, by the digest of its canonical form.
func sign(key []byte, at time.Time, s Scope, canonical string) string {
	text := Algorithm + "\n" + at.UTC().Format(timeFormat) + "\n" + s.String() + "\n" + canonical
	return hex.EncodeToString(mac(key, text))
}

// canonicalSum is the digest of the canonical form of r. signed has the names of the signed
// headers, separated by semicolons, without repetitions (see badNames). As clients need no key
// to have it computed, the form is hashed piece by piece, at a cost in proportion to the
// request's bytes.
func (r *Request) canonicalSum(signed, payload string) (string, error) {
	path, err := url.PathUnescape(r.Path)
	if err != nil {
		return "", err
	}
	query, err := parseParams(r.Query)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	w := bufio.NewWriterSize(sum, 512) // it never fails
	for _, part := range []string{r.Method, "\n", EscapePath(path), "\n"} {
		_, _ = w.WriteString(part)
	}
	for i, p := range query {
		if i > 0 {
			_ = w.WriteByte('&')
		}
		_, _ = w.WriteString(p.name)
		_ = w.WriteByte('=')
		_, _ = w.WriteString(p.value)
	}
	_ = w.WriteByte('\n')
	for name := range strings.SplitSeq(signed, ";") {
		_, _ = w.WriteString(name)
		_ = w.WriteByte(':')
		r.writeHeader(w, name)
		_ = w.WriteByte('\n')
	}
	for _, part := range []string{"\n", signed, "\n", payload} {
		_, _ = w.WriteString(part)
	}
	_ = w.Flush()
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// writeHeader writes the canonical value of a header. net/http removes some from http.Header.
func (r *Request) writeHeader(w *bufio.Writer, name string) {
	switch name {
	case "host":
		_, _ = w.WriteString(r.Host)
		return
	case "content-length":
		if r.Header.Get(name) == "" && r.Length >= 0 {
			_, _ = w.WriteString(strconv.FormatInt(r.Length, 10))
			return
		}
	}
	for i, v := range r.Header[http.CanonicalHeaderKey(name)] {
		if i > 0 {
			_ = w.WriteByte(',')
		}
		squeeze(w, v)
	}
}

// param is a parameter of a query in canonical encoding.
type param struct{ name, value string }

// parseParams sorts and encodes the parameters of a query, without the signature.
func parseParams(raw string) ([]param, error) {
	var params []param
	for part := range strings.SplitSeq(raw, "&") {
		if part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		name, err := url.QueryUnescape(name)
		if err != nil {
			return nil, err
		}
		if value, err = url.QueryUnescape(value); err != nil {
			return nil, err
		}
		if name != paramSignature {
			params = append(params, param{escape(name), escape(value)})
		}
	}
	slices.SortFunc(params, func(a, b param) int {
		return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.value, b.value))
	})
	return params, nil
}

// EscapePath percent-encodes all bytes of a path but the unreserved ones and slashes.
func EscapePath(path string) string { return strings.ReplaceAll(escape(path), "%2F", "/") }

// escape percent-encodes all bytes but the unreserved ones.
func escape(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }

// squeeze trims spaces around a value, and replaces runs of spaces inside by one.
func squeeze(w *bufio.Writer, v string) {
	v = strings.Trim(v, " ")
	for {
		i := strings.Index(v, "  ")
		if i < 0 {
			break
		}
		_, _ = w.WriteString(v[:i+1])
		v = strings.TrimLeft(v[i:], " ")
	}
	_, _ = w.WriteString(v)
}
