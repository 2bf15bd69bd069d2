package s3api_test

import (
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/s3api"
)

// plainS3 is S3's documented behaviour in memory, written down in the plainest
// way and sharing no code with the handler: what the differential test compares
// it with.
type plainS3 struct {
	buckets map[string]map[string]plainObject
	now     time.Time
	longest int // body
}

type plainObject struct {
	body, contentType string
	header            map[string]string // Cache-Control and user metadata
	at                time.Time
}

func (o plainObject) etag() string {
	sum := md5.Sum([]byte(o.body))
	return hex.EncodeToString(sum[:])
}

// plainRequest is sent to both sides.
type plainRequest struct {
	method, bucket, key string
	query               url.Values
	header              map[string]string
	body                string
	// after is where the page with the query's token goes on.
	after string
}

// plainAnswer is what is compared.
type plainAnswer struct {
	status int
	header map[string]string
	body   string
}

const plainNS = `<?xml version="1.0" encoding="UTF-8"?>` + "\n"

func (p *plainS3) fail(status int, code, detail string, header ...string) plainAnswer {
	a := plainAnswer{status, map[string]string{"Content-Type": "application/xml"},
		plainNS + "<Error><Code>" + code + "</Code><Message>M</Message>" + detail +
			"<Resource>R</Resource><RequestId>I</RequestId><HostId>H</HostId></Error>"}
	for i := 0; i < len(header); i += 2 {
		a.header[header[i]] = header[i+1]
	}
	return a
}

func plainText(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&apos;", "\n", "&#xA;",
		"\t",
		"&#x9;", "\r", "&#xD;").Replace(s)
}

func plainURL(s string) string {
	return strings.NewReplacer("+", "%20", "%2F", "/", "%2A", "*", "~", "%7E").Replace(url.QueryEscape(s))
}

func (p *plainS3) do(r plainRequest) plainAnswer {
	if r.bucket != "" && s3api.BadBucketName(r.bucket) != "" {
		return p.fail(400, "InvalidBucketName", "")
	}
	objects, there := p.buckets[r.bucket]
	ok := plainAnswer{status: 200, header: map[string]string{}}
	if r.key == "" {
		switch {
		case r.method == "PUT":
			if !there {
				p.buckets[r.bucket] = map[string]plainObject{}
			}
			ok.header["Location"] = "/" + r.bucket
			return ok
		case r.method == "GET":
			return p.list(r)
		case !there:
			return p.fail(404, "NoSuchBucket", "")
		case r.method == "HEAD":
			return ok
		case r.method == "DELETE" && len(objects) > 0:
			return p.fail(409, "BucketNotEmpty", "")
		case r.method == "DELETE":
			delete(p.buckets, r.bucket)
			return plainAnswer{status: 204, header: map[string]string{}}
		}
	}
	if v, named := r.query["versionId"]; named && v[0] != "null" && (there || r.method == "PUT") {
		return p.fail(400, "InvalidArgument", "")
	}
	switch r.method {
	case "PUT":
		return p.put(r, objects, there)
	case "DELETE":
		if !there {
			return p.fail(404, "NoSuchBucket", "")
		}
		if a := p.mayWrite(r, objects); a != nil {
			return *a
		}
		delete(objects, r.key)
		return plainAnswer{status: 204, header: map[string]string{}}
	}
	if !there {
		return p.fail(404, "NoSuchBucket", "")
	}
	return p.get(r, objects)
}

// mayWrite judges If-Match and If-None-Match.
func (p *plainS3) mayWrite(r plainRequest, objects map[string]plainObject) *plainAnswer {
	o, there := objects[r.key]
	match, none := r.header["If-Match"], r.header["If-None-Match"]
	var a plainAnswer
	switch {
	case match != "" && !there:
		a = p.fail(404, "NoSuchKey", "")
	case match != "" && match != "*" && strings.Trim(match, `"`) != o.etag():
		a = p.fail(412, "PreconditionFailed", "<Condition>If-Match</Condition>")
	case none != "" && there && (none == "*" || strings.Trim(none, `"`) == o.etag()):
		a = p.fail(412, "PreconditionFailed", "<Condition>If-None-Match</Condition>")
	default:
		return nil
	}
	return &a
}

func (p *plainS3) put(r plainRequest, objects map[string]plainObject, there bool) plainAnswer {
	o := plainObject{body: r.body, contentType: r.header["Content-Type"], header: map[string]string{}, at: p.now}
	for name, value := range r.header {
		if strings.HasPrefix(name, "X-Amz-Meta-") || name == "Cache-Control" {
			o.header[name] = value
		}
	}
	source := r.header["X-Amz-Copy-Source"]
	if !there && source == "" {
		return p.fail(404, "NoSuchBucket", "")
	}
	if len(r.body) > p.longest {
		return p.fail(400, "EntityTooLarge", "")
	}
	if sum := r.header["Content-Md5"]; sum != "" && sum != md5Of(r.body) {
		return p.fail(400, "BadDigest", "")
	}
	if source != "" {
		bucket, key, _ := strings.Cut(source, "/")
		key, _ = url.QueryUnescape(key)
		if bucket == r.bucket && key == r.key && r.header["X-Amz-Metadata-Directive"] != "REPLACE" {
			return p.fail(400, "InvalidRequest", "")
		}
		if !there {
			return p.fail(404, "NoSuchBucket", "")
		}
		from, exists := p.buckets[bucket]
		old, has := from[key]
		if !exists {
			return p.fail(404, "NoSuchBucket", "")
		}
		if !has {
			return p.fail(404, "NoSuchKey", "")
		}
		o.body = old.body
		if r.header["X-Amz-Metadata-Directive"] != "REPLACE" {
			o.header, o.contentType = old.header, old.contentType
		}
	}
	if a := p.mayWrite(r, objects); a != nil {
		return *a
	}
	objects[r.key] = o
	if source != "" {
		return plainAnswer{200, map[string]string{"Content-Type": "application/xml"},
			plainNS + `<CopyObjectResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><LastModified>` +
				o.at.Format("2006-01-02T15:04:05") + ".000Z" + "</LastModified><ETag>&quot;" + o.etag() +
				"&quot;</ETag></CopyObjectResult>"}
	}
	return plainAnswer{status: 200, header: map[string]string{"ETag": `"` + o.etag() + `"`}}
}

func (p *plainS3) get(r plainRequest, objects map[string]plainObject) plainAnswer {
	o, has := objects[r.key]
	if !has {
		return p.fail(404, "NoSuchKey", "")
	}
	named := func(list string) bool { return list == "*" || strings.Trim(list, `"`) == o.etag() }
	later := func(date string) bool { t, _ := http.ParseTime(date); return o.at.Truncate(time.Second).After(t) }
	h := r.header
	switch {
	case h["If-Match"] != "" && !named(h["If-Match"]):
		return p.fail(412, "PreconditionFailed", "<Condition>If-Match</Condition>")
	case h["If-Match"] == "" && h["If-Unmodified-Since"] != "" && later(h["If-Unmodified-Since"]):
		return p.fail(412, "PreconditionFailed", "<Condition>If-Unmodified-Since</Condition>")
	}
	a := plainAnswer{200, map[string]string{"ETag": `"` + o.etag() + `"`, "Last-Modified": o.at.Format(http.TimeFormat),
		"Accept-Ranges": "bytes"}, o.body}
	maps.Copy(a.header, o.header)
	since, _ := http.ParseTime(h["If-Modified-Since"])
	told := !since.After(p.now) || since.Equal(o.at.Truncate(time.Second)) // a time to come is none
	if h["If-None-Match"] != "" && named(h["If-None-Match"]) || h["If-None-Match"] == "" &&
		h["If-Modified-Since"] != "" && told && !later(h["If-Modified-Since"]) {
		a.status, a.body = 304, ""
		return a
	}
	a.header["Content-Type"] = o.contentType
	if o.contentType == "" {
		a.header["Content-Type"] = "binary/octet-stream"
	}
	n := len(o.body)
	if spec, ranged := strings.CutPrefix(h["Range"], "bytes="); ranged {
		first, last, _ := strings.Cut(spec, "-")
		from, err1 := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		switch {
		case first == "" && err2 == nil && n == 0 && to > 0:
			ranged = false // the last bytes of nothing
		case first == "" && err2 == nil:
			from, to = max(n-to, 0), n-1
			if last == "0" {
				from = n
			}
		case last == "" && err1 == nil:
			to = n - 1
		case err1 != nil || err2 != nil || from > to:
			ranged = false
		}
		if ranged && from >= n {
			return p.fail(416, "InvalidRange", "", "Content-Range", fmt.Sprintf("bytes */%d", n))
		}
		if ranged {
			to = min(to, n-1)
			a.status, a.body = 206, o.body[from:to+1]
			a.header["Content-Range"] = fmt.Sprintf("bytes %d-%d/%d", from, to, n)
		}
	}
	a.header["Content-Length"] = strconv.Itoa(len(a.body))
	return a
}

// list answers any of the three listings.
func (p *plainS3) list(r plainRequest) plainAnswer {
	q := r.query
	limit := 1000
	if s := q.Get("max-keys"); s != "" {
		n, err := strconv.ParseInt(s, 10, 32)
		if err != nil || n < 0 {
			return p.fail(400, "InvalidArgument", "")
		}
		limit = min(int(n), 1000)
	}
	enc := func(s string) string { return plainText(s) }
	switch q.Get("encoding-type") {
	case "":
	case "url":
		enc = plainURL
	default:
		return p.fail(400, "InvalidArgument", "")
	}
	v2, versions := q.Get("list-type") == "2", q.Has("versions")
	m := q.Get("version-id-marker")
	if versions && m != "" && q.Get("key-marker") == "" {
		return p.fail(400, "InvalidArgument", "")
	}
	objects, there := p.buckets[r.bucket]
	if !there {
		return p.fail(404, "NoSuchBucket", "")
	}
	if versions && m != "" && m != "null" {
		return p.fail(400, "InvalidArgument", "")
	}
	all := model{}
	for k, o := range objects {
		all[k] = o.body
	}
	query := modelQuery{prefix: q.Get("prefix"), delimiter: q.Get("delimiter")}
	var lines []line
	switch {
	case v2:
		query.startAfter = q.Get("start-after")
		lines = all.list(query)
		if q.Has("continuation-token") {
			lines = slices.DeleteFunc(lines, func(l line) bool { return l.text <= r.after })
		}
	case versions:
		query.startAfter = q.Get("key-marker")
		lines = all.marked(query)
	default:
		query.startAfter = q.Get("marker")
		lines = all.marked(query)
	}
	page := lines[:min(len(lines), limit)]
	truncated := len(lines) > len(page) && limit > 0
	last := line{}
	if truncated {
		last = page[len(page)-1]
	}
	var b strings.Builder
	tag := func(name, text string) { b.WriteString("<" + name + ">" + text + "</" + name + ">") }
	root, item := "ListBucketResult", "Contents"
	if versions {
		root, item = "ListVersionsResult", "Version"
	}
	b.WriteString(plainNS + "<" + root + ` xmlns="http://s3.amazonaws.com/doc/2006-03-01/">`)
	tag("Name", r.bucket)
	tag("Prefix", enc(query.prefix))
	switch {
	case v2:
		if query.startAfter != "" {
			tag("StartAfter", enc(query.startAfter))
		}
		if q.Has("continuation-token") {
			tag("ContinuationToken", "T")
		}
		if truncated {
			tag("NextContinuationToken", "T")
		}
		tag("KeyCount", strconv.Itoa(len(page)))
	case versions:
		tag("KeyMarker", enc(query.startAfter))
		tag("VersionIdMarker", q.Get("version-id-marker"))
		if truncated {
			tag("NextKeyMarker", enc(last.text))
			if !last.prefix {
				tag("NextVersionIdMarker", "null")
			}
		}
	default:
		tag("Marker", enc(query.startAfter))
		if truncated && query.delimiter != "" {
			tag("NextMarker", enc(last.text))
		}
	}
	tag("MaxKeys", strconv.Itoa(limit))
	if query.delimiter != "" {
		tag("Delimiter", enc(query.delimiter))
	}
	if q.Get("encoding-type") != "" {
		tag("EncodingType", "url")
	}
	tag("IsTruncated", strconv.FormatBool(truncated))
	for _, l := range page {
		if l.prefix {
			continue
		}
		o := objects[l.text]
		b.WriteString("<" + item + ">")
		tag("Key", enc(l.text))
		if versions {
			tag("VersionId", "null")
			tag("IsLatest", "true")
		}
		tag("LastModified", o.at.Format("2006-01-02T15:04:05")+".000Z")
		tag("ETag", "&quot;"+o.etag()+"&quot;")
		tag("Size", strconv.Itoa(len(o.body)))
		if !v2 || q.Get("fetch-owner") == "true" {
			b.WriteString("<Owner><ID>evenkeel</ID><DisplayName>evenkeel</DisplayName></Owner>")
		}
		tag("StorageClass", "STANDARD")
		b.WriteString("</" + item + ">")
	}
	for _, l := range page {
		if l.prefix {
			b.WriteString("<CommonPrefixes>")
			tag("Prefix", enc(l.text))
			b.WriteString("</CommonPrefixes>")
		}
	}
	b.WriteString("</" + root + ">")
	return plainAnswer{200, map[string]string{"Content-Type": "application/xml"}, b.String()}
}
