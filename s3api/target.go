package s3api

import (
	"net"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/evenkeel/evenkeel/internal/sigv4"
)

// maxKeyBytes is the largest length of a key in bytes, as in S3.
const maxKeyBytes = 1024

// maxParams is the largest number of parameters in the query of a request. A short parameter takes a hundred times its
// bytes in memory, so the number is limited. A presigned URL may have a parameter for each signed header.
const maxParams = sigv4.MaxSignedHeaders

// target says what a request is about: a bucket and perhaps a key, and the query parameters. Without a key the request
// is about the bucket, and without a bucket about the whole service.
type target struct {
	bucket string
	key    string
	query  url.Values
}

// parseTarget returns the bucket, the key and the query from the URL of the request r. Paths are not cleaned: "//",
// ".", ".." and escaped slashes are parts of keys. If the host consists of a bucket's name and one of suffixes, e.g.
// photos.s3.example.com, the whole path is the key.
func parseTarget(r *http.Request, suffixes []string) (target, *Error) {
	path, rawQuery := splitTarget(r)
	if strings.Count(rawQuery, "&") >= maxParams {
		return target{}, refuse(http.StatusBadRequest, "InvalidURI", "The query has more than %d parameters.", maxParams)
	}
	query, err := url.ParseQuery(rawQuery)
	if err != nil {
		return target{}, refuse(http.StatusBadRequest, "InvalidURI", "The query can't be parsed: %v.", err)
	}
	bucket, key, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	ofHost := bucketOfHost(r.Host, suffixes)
	if ofHost != "" {
		bucket, key = ofHost, strings.TrimPrefix(path, "/")
	} else {
		bucket, err = url.PathUnescape(bucket)
	}
	if err == nil {
		key, err = url.PathUnescape(key)
	}
	if err != nil {
		return target{}, refuse(http.StatusBadRequest, "InvalidURI", "The path can't be parsed: %v.", err)
	}
	if !strings.HasPrefix(path, "/") || (bucket == "" && path != "/") {
		return target{}, refuse(http.StatusBadRequest, "InvalidURI", "The path is /BUCKET or /BUCKET/KEY.")
	}
	t := target{bucket: bucket, key: key, query: query}
	if bucket != "" {
		// The library allows more bucket names than S3. Such a bucket appears in ListBuckets, and can be deleted.
		bareDelete := r.Method == http.MethodDelete && key == "" && subresource(query, bucketResources) == ""
		if refusal := checkBucketName(bucket); refusal != nil && !bareDelete {
			return t, refusal
		}
	}
	if len(key) > maxKeyBytes {
		return t, refuse(http.StatusBadRequest, "KeyTooLongError", "Your key has %d bytes: at most %d.", len(key),
			maxKeyBytes)
	}
	return t, nil
}

// bucketOfHost returns the bucket that a host name contains: the text before the longest matching suffix. For example,
// photos.s3.example.com names the bucket photos if s3.example.com is a suffix. It returns "" if no suffix matches.
func bucketOfHost(host string, suffixes []string) string {
	host = strings.ToLower(host)
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	bucket, longest := "", 0
	for _, suffix := range suffixes {
		before, found := strings.CutSuffix(host, suffix)
		if !found || len(suffix) <= longest {
			continue
		}
		if before == "" {
			bucket, longest = "", len(suffix) // the host of the service itself
		} else if name, dot := strings.CutSuffix(before, "."); dot && name != "" {
			bucket, longest = name, len(suffix)
		}
	}
	return bucket
}

// splitTarget returns the path and the query of a request as the client sent them, both undecoded. Behind a proxy the
// request line may contain the whole URL, of which splitTarget also takes only the path and the query.
func splitTarget(r *http.Request) (path, query string) {
	raw := r.RequestURI
	if raw == "" {
		raw = r.URL.RequestURI()
	}
	path, query, _ = strings.Cut(raw, "?")
	if !strings.HasPrefix(path, "/") {
		if _, rest, absolute := strings.Cut(path, "://"); absolute {
			slash := strings.IndexByte(rest, '/')
			if slash < 0 {
				return "/", query
			}
			path = rest[slash:]
		}
	}
	return path, query
}

// checkNewKey returns an error if the new key in a request is not UTF-8. S3 refuses such keys, because a plain listing
// fails for everybody when it reaches one. A new key may have any bytes if
//   - the request has the header for such keys, and
//   - the access key has the right to store them.
//
// Reads and deletes always accept any bytes, as package listing does.
func (x *exchange) checkNewKey() *Error {
	switch {
	case utf8.ValidString(x.key):
		return nil
	case x.r.Header.Get(headerKeyBytes) != "any":
		return refuse(http.StatusBadRequest, "InvalidURI", "The key is not UTF-8. "+
			"(Any bytes can be stored through the library, or with the header %s: any.)", headerKeyBytes)
	case !x.who.AnyBytes:
		return accessDenied("The key is not UTF-8, and the access key may not store such keys: " +
			"it needs key-bytes: any in the file of access keys.")
	}
	return nil
}

func checkBucketName(name string) *Error {
	if reason := badBucketName(name); reason != "" {
		return refuse(http.StatusBadRequest, "InvalidBucketName", "The specified bucket is not valid: %s.", reason)
	}
	return nil
}

// badBucketName returns the rule of S3 that a bucket name breaks, as a text, or "" for a good name.
// https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html
func badBucketName(name string) string {
	if len(name) < 3 || len(name) > 63 {
		return "a name has 3 to 63 characters"
	}
	dots, digits := 0, 0
	for i := 0; i < len(name); i++ {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z':
		case c >= '0' && c <= '9':
			digits++
		case (c == '-' || c == '.') && (i == 0 || i == len(name)-1):
			return "a name begins and ends with a letter or digit"
		case c == '.':
			dots++
		case c == '-':
		default:
			return "a name is made of lower-case letters, digits, dots and hyphens"
		}
	}
	if strings.Contains(name, "..") {
		return "two dots must not be neighbours"
	}
	if dots == 3 && dots+digits == len(name) {
		return "a name must not look like an IP address"
	}
	for _, p := range []string{"xn--", "sthree-", "amzn-s3-demo-"} {
		if strings.HasPrefix(name, p) {
			return "names that begin with " + p + " are reserved"
		}
	}
	for _, s := range []string{"-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3"} {
		if strings.HasSuffix(name, s) {
			return "names that end with " + s + " are reserved"
		}
	}
	return ""
}
