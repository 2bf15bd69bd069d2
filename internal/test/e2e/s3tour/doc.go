// Package s3tour takes the S3 clients that others use through what people do with a
// bucket: they create it, sync a directory tree up and down again, list it in pages
// and by delimiter, and delete all of it. Only tests import it.
package s3tour
