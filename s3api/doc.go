// Package s3api serves the S3 dialect over listing: path style or
// virtual-host style, in the shapes
// that S3's own clients expect. What it doesn't do it refuses by name with
// 501 NotImplemented; it never answers a wrong 200.
//
// Keys are taken from the raw request path and are never cleaned. Values are
// metadata: a small body is kept inline, an object whose bytes live elsewhere
// is recorded with its size and ETag.
package s3api
