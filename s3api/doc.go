// Package s3api serves the S3 protocol over package listing, with bucket names in paths or in host names, and with the
// answers that S3's own clients expect. A feature that is not implemented is refused by its name, with 501
// NotImplemented. No part of a request that would change its meaning is ignored.
//
// Keys are taken from the raw request path, which is not cleaned. In a plain bucket, values are metadata: a small body
// is stored in the entry, and an object whose bytes are stored elsewhere has an entry with its size and ETag. A bucket
// of objects has versions and bodies of any size.
package s3api
