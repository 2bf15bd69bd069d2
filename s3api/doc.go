// Package s3api serves the S3 dialect over package listing, path style or virtual-host style,
// with the answers that S3's own clients expect. It refuses what it does not implement by name,
// with 501 NotImplemented, and ignores nothing that would change the meaning of a request.
//
// Keys are taken from the raw request path, which is not cleaned. Values are metadata: a small
// body is stored inline, and an object whose bytes are stored elsewhere with its size and ETag.
package s3api
