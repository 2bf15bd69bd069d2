// Package sigv4 signs and verifies requests by AWS Signature Version 4, as S3
// has it: paths are encoded once and never cleaned; a body is covered by its
// digest, chunk by chunk, or not at all.
// https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-authenticating-requests.html
//
// It does no I/O and never asks for the time.
package sigv4

import (
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
	// MaxSkew is how far a request's time may be from the server's.
	MaxSkew = 15 * time.Minute
	// MaxExpires is how long a presigned URL may be good for.
	MaxExpires = 7 * 24 * time.Hour

	service    = "s3"
	terminator = "aws4_request"
	timeFormat = "20060102T150405Z"
	dateFormat = "20060102"
)

// What stands for the body, beside the hexadecimal SHA-256 of all of it.
const (
	// UnsignedPayload: the signature does not cover the body.
	UnsignedPayload = "UNSIGNED-PAYLOAD"
	// SignedChunks: the body is aws-chunked, and each chunk is signed.
	SignedChunks = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
	// SignedChunksTrailer: so are the trailers.
	SignedChunksTrailer = SignedChunks + "-TRAILER"
	// UnsignedChunksTrailer: aws-chunked with trailers, not signed.
	UnsignedChunksTrailer = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
)

// Request is the part of a request that a signature covers.
type Request struct {
	Method string
	// Path and Query are as they were sent, with their percent-encoding: Path
	// from its slash on, Query without the question mark.
	Path, Query string
	Host        string
	Header      http.Header
	// Length is that of the body; -1: not said.
	Length int64
}

// Scope is what a signing key is good for.
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

// sign returns the signature of a request whose canonical form is given.
func sign(key []byte, at time.Time, s Scope, canonical string) string {
	text := Algorithm + "\n" + at.UTC().Format(timeFormat) + "\n" + s.String() + "\n" + hexSum(canonical)
	return hex.EncodeToString(mac(key, text))
}

// canonical is the form of r that is signed. signed are the names of the signed
// headers as they were given.
func (r *Request) canonical(signed []string, payload string) (string, error) {
	path, err := url.PathUnescape(r.Path)
	if err != nil {
		return "", err
	}
	query, err := canonicalQuery(r.Query)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(r.Method)
	b.WriteByte('\n')
	b.WriteString(escape(path, true))
	b.WriteByte('\n')
	b.WriteString(query)
	b.WriteByte('\n')
	for _, name := range signed {
		b.WriteString(name)
		b.WriteByte(':')
		b.WriteString(r.header(name))
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	b.WriteString(strings.Join(signed, ";"))
	b.WriteByte('\n')
	b.WriteString(payload)
	return b.String(), nil
}

// header is the canonical value of a header; net/http takes some out of
// http.Header.
func (r *Request) header(name string) string {
	switch name {
	case "host":
		return r.Host
	case "content-length":
		if r.Header.Get(name) == "" && r.Length >= 0 {
			return strconv.FormatInt(r.Length, 10)
		}
	}
	values := r.Header[http.CanonicalHeaderKey(name)]
	trimmed := make([]string, len(values))
	for i, v := range values {
		trimmed[i] = squeeze(v)
	}
	return strings.Join(trimmed, ",")
}

// squeeze drops spaces around a value and makes one of several inside.
func squeeze(v string) string {
	v = strings.Trim(v, " ")
	for strings.Contains(v, "  ") {
		v = strings.ReplaceAll(v, "  ", " ")
	}
	return v
}

// canonicalQuery sorts the parameters and encodes them anew; the signature
// itself is left out.
func canonicalQuery(raw string) (string, error) {
	type param struct{ name, value string }
	var params []param
	for raw != "" {
		var part string
		part, raw, _ = strings.Cut(raw, "&")
		if part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		name, err := url.QueryUnescape(name)
		if err != nil {
			return "", err
		}
		if value, err = url.QueryUnescape(value); err != nil {
			return "", err
		}
		if name != paramSignature {
			params = append(params, param{escape(name, false), escape(value, false)})
		}
	}
	slices.SortFunc(params, func(a, b param) int {
		if c := strings.Compare(a.name, b.name); c != 0 {
			return c
		}
		return strings.Compare(a.value, b.value)
	})
	var b strings.Builder
	for i, p := range params {
		if i > 0 {
			b.WriteByte('&')
		}
		b.WriteString(p.name)
		b.WriteByte('=')
		b.WriteString(p.value)
	}
	return b.String(), nil
}

// escape percent-encodes all bytes but the unreserved ones, and slashes if they
// are to be kept.
func escape(s string, slashes bool) string {
	const digits = "0123456789ABCDEF"
	b := make([]byte, 0, len(s)+16)
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			c == '-' || c == '_' || c == '.' || c == '~' || slashes && c == '/' {
			b = append(b, c)
		} else {
			b = append(b, '%', digits[c>>4], digits[c&15])
		}
	}
	return string(b)
}
