// Package sigv4 signs and verifies requests by AWS Signature Version 4, in the variant of S3. In this variant paths are
// encoded once and not cleaned, and a signature covers the digest of the body, its chunks, or nothing of the body.
// https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-authenticating-requests.html
//
// It also verifies signatures of the older version 2, by which SDKs presign URLs. These cover less: see Claim.Signs and
// Claim.SignsParam.
//
// The package does no I/O, and callers pass the time.
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
	// Algorithm is the name of the signature algorithm of version 4.
	Algorithm = "AWS4-HMAC-SHA256"
	// MaxSkew is the largest accepted difference between the time of a request and the server's time.
	MaxSkew = 15 * time.Minute
	// MaxExpires is the longest validity of a presigned URL.
	MaxExpires = 7 * 24 * time.Hour
	// MaxSignedHeaders is the largest number of headers that a signature may cover. A request with headers of 8 KiB,
	// which is the largest size that AWS accepts, has fewer.
	MaxSignedHeaders = 512

	service    = "s3"
	terminator = "aws4_request"
	timeFormat = "20060102T150405Z"
	dateFormat = "20060102"
)

// Texts that a signature can contain in place of the body's SHA-256. They say how the body is signed, if at all.
const (
	// UnsignedPayload says that the signature does not cover the body.
	UnsignedPayload = "UNSIGNED-PAYLOAD"
	// SignedChunks says that the body is in S3's encoding aws-chunked, and that each chunk is signed.
	SignedChunks = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
	// SignedChunksTrailer says that the body is in S3's encoding aws-chunked, and that each chunk and the trailers are
	// signed. Trailers are header lines after the last chunk.
	SignedChunksTrailer = SignedChunks + "-TRAILER"
	// UnsignedChunksTrailer says that the body is in S3's encoding aws-chunked with trailers, which are header lines
	// after the last chunk, and that neither chunks nor trailers are signed.
	UnsignedChunksTrailer = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
)

// Request has those parts of an HTTP request that a signature covers, except for the body.
type Request struct {
	Method string
	// Path and Query are percent-encoded, as the client sent them. Path begins with a slash, and Query does not contain
	// the question mark.
	Path, Query string
	Host        string
	// Bucket is the name of the bucket in Host, or empty if Host has none. Signatures of version 2 cover it.
	Bucket string
	Header http.Header
	// Length is the length of the body in bytes, or -1 if it is unknown.
	Length int64
}

// Scope limits a signature to one day and one region. A signing key that is derived for one scope makes no valid
// signatures for another scope.
type Scope struct {
	Date   string // YYYYMMDD
	Region string
}

func (s Scope) String() string {
	return s.Date + "/" + s.Region + "/" + service + "/" + terminator
}

// signingKey derives the key that makes signatures for the date and the region in s. secret is the secret of an access
// key.
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

// sign returns the signature of a request in hexadecimal digits. key is the signing key, at is the time of the request,
// and s has its date and region. canonical is the digest of the request's canonical form, which canonicalSum returns.
func sign(key []byte, at time.Time, s Scope, canonical string) string {
	text := Algorithm + "\n" + at.UTC().Format(timeFormat) + "\n" + s.String() + "\n" + canonical
	return hex.EncodeToString(mac(key, text))
}

// canonicalSum returns the SHA-256 of the request's canonical form, in hexadecimal digits. signed has the names of the
// signed headers, separated by semicolons and without duplicates (see badNames). payload is the text that stands for
// the body. As clients without an access key can cause this work, the form is hashed piece by piece, at a cost in
// proportion to the request's bytes.
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
	w := bufio.NewWriterSize(sum, 512) // writing to a hash never fails
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

// writeHeader writes the value of the named header to w, in the canonical form that is signed. The values of Host and
// Content-Length are taken from fields of r, as net/http removes these headers from http.Header.
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

// param is one query parameter. Its name and value are percent-encoded in the form that signatures prescribe.
type param struct{ name, value string }

// parseParams returns the sorted parameters of the encoded query raw, except for the parameter with the signature.
// Names and values are percent-encoded in the form that signatures prescribe.
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

// EscapePath returns path with all bytes percent-encoded except slashes and the unreserved characters: letters, digits,
// - _ . ~.
func EscapePath(path string) string { return strings.ReplaceAll(escape(path), "%2F", "/") }

// escape returns s with all bytes percent-encoded except the unreserved characters: letters, digits, - _ . ~.
func escape(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }

// squeeze writes the header value v to w without spaces at its ends, and with each sequence of spaces replaced by one
// space.
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
