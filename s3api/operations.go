package s3api

import (
	"net/http"
	"net/url"
	"slices"
	"sort"
	"strings"
)

// operation is one thing that S3, or evenkeel beside it, can be asked. Its name
// goes to logs, metrics and NotImplemented answers.
type operation struct {
	name string
	// serve is nil for what isn't implemented.
	serve func(*Handler, *exchange) error
	// later: serve begins the work itself (Handler.begin), when the body has come, or when
	// there is memory for the answer.
	later bool
	// long: a read that may go on for long, so it ends when its client leaves.
	long bool
	// turns: a page, or a document, that keeps a processor busy for long.
	turns bool
	// write: an error may leave the outcome unknown, and a key that is read-only
	// is not enough.
	write bool
	// conditions are those that a write takes.
	conditions []string
	// scope is what a key has to be good for.
	scope scope
}

var bothMatches = []string{"If-Match", "If-None-Match"}

// The operations that are implemented; docs/s3.md says how.
var (
	opListBuckets  = operation{name: "ListBuckets", serve: (*Handler).listBuckets, later: true, long: true}
	opCreateBucket = operation{
		name: "CreateBucket", serve: (*Handler).createBucket,
		later: true, write: true, scope: onBucket,
	}
	opHeadBucket   = operation{name: "HeadBucket", serve: (*Handler).headBucket, scope: inBucket}
	opDeleteBucket = operation{
		name: "DeleteBucket", serve: (*Handler).deleteBucket,
		write: true, scope: onBucket,
	}
	opGetBucketLocation = operation{name: "GetBucketLocation", serve: (*Handler).getBucketLocation, scope: inBucket}
	opListObjectsV2     = operation{
		name: "ListObjectsV2", serve: listIn(formV2),
		later: true, long: true, turns: true, scope: onListing,
	}
	opListObjects = operation{
		name: "ListObjects", serve: listIn(formV1),
		later: true, long: true, turns: true, scope: onListing,
	}
	opListObjectVersions = operation{
		name: "ListObjectVersions", serve: listIn(formVersions),
		later: true, long: true, turns: true, scope: onListing,
	}
	opGetBucketVersioning = operation{
		name: "GetBucketVersioning", serve: (*Handler).getBucketVersioning,
		scope: inBucket,
	}
	opGetBucketAcl = operation{name: "GetBucketAcl", serve: (*Handler).getBucketAcl, scope: inBucket}
	opPutBucketAcl = operation{
		name: "PutBucketAcl", serve: (*Handler).putBucketAcl,
		later: true, write: true, scope: onBucket,
	}
	opDeleteObjects = operation{
		name: "DeleteObjects", serve: (*Handler).deleteObjects,
		turns: true, later: true, write: true, scope: inBody,
	}
	opPutObject = operation{
		name: "PutObject", serve: (*Handler).putObject,
		later: true, write: true, scope: onKey, conditions: bothMatches,
	}
	opCopyObject = operation{
		name: "CopyObject", serve: (*Handler).copyObject,
		write: true, scope: onKey, conditions: bothMatches,
	}
	opGetObjectAcl = operation{name: "GetObjectAcl", serve: (*Handler).getObjectAcl, scope: onKey}
	opPutObjectAcl = operation{
		name: "PutObjectAcl", serve: (*Handler).putObjectAcl,
		later: true, write: true, scope: onKey,
	}
	opGetObject    = operation{name: "GetObject", serve: (*Handler).getObject, scope: onKey}
	opHeadObject   = operation{name: "HeadObject", serve: (*Handler).headObject, scope: onKey}
	opDeleteObject = operation{
		name: "DeleteObject", serve: (*Handler).deleteObject,
		write: true, scope: onKey, conditions: bothMatches[:1],
	}

	// Extensions, named by query parameters that begin with evenkeel-.
	opSplitPoints = operation{
		name: "EvenkeelSplitPoints", serve: (*Handler).splitPoints,
		later: true, long: true, turns: true, scope: onListing,
	}
)

// Query parameters that name a sub-resource of a bucket or an object, with S3's
// noun for it. The operation's name is made of the method and the noun.
var (
	bucketResources = map[string]string{
		"accelerate": "BucketAccelerateConfiguration", "acl": "BucketAcl", "analytics": "BucketAnalyticsConfiguration",
		"cors": "BucketCors", "encryption": "BucketEncryption", "intelligent-tiering": "BucketIntelligentTieringConfiguration",
		"inventory": "BucketInventoryConfiguration", "lifecycle": "BucketLifecycleConfiguration", "location": "BucketLocation",
		"logging": "BucketLogging", "metadataConfiguration": "BucketMetadataConfiguration", "metadataTable": "BucketMetadataTableConfiguration",
		"metrics": "BucketMetricsConfiguration", "notification": "BucketNotificationConfiguration", "object-lock": "ObjectLockConfiguration",
		"ownershipControls": "BucketOwnershipControls", "policy": "BucketPolicy", "policyStatus": "BucketPolicyStatus",
		"publicAccessBlock": "PublicAccessBlock", "replication": "BucketReplication", "requestPayment": "BucketRequestPayment",
		"session": "Session", "tagging": "BucketTagging", "uploads": "MultipartUploads", "versioning": "BucketVersioning",
		"versions": "ObjectVersions", "website": "BucketWebsite", "delete": "Objects", "events": "BucketNotification",
	}
	objectResources = map[string]string{
		"acl": "ObjectAcl", "attributes": "ObjectAttributes", "legal-hold": "ObjectLegalHold", "partNumber": "ObjectPart", // of a read
		"renameObject": "RenameObject", "restore": "RestoreObject", "retention": "ObjectRetention", "select": "SelectObjectContent",
		"tagging": "ObjectTagging", "torrent": "ObjectTorrent", "uploadId": "MultipartUpload", "uploads": "MultipartUpload",
		"append": "AppendObject",
	}
	// postNames are the operations whose method doesn't make their name.
	postNames = map[string]string{
		"delete": "DeleteObjects", "uploads": "CreateMultipartUpload", "uploadId": "CompleteMultipartUpload",
		"restore": "RestoreObject", "select": "SelectObjectContent",
	}
)

// operationFor finds the operation that a request asks for. What is not
// implemented comes back with its name and without serve.
func operationFor(method string, t target, header http.Header) operation {
	switch {
	case t.bucket == "":
		if method == http.MethodGet && subresource(t.query, bucketResources) == "" {
			return opListBuckets
		}
		return operation{name: method + " on the service"}
	case t.key == "":
		return bucketOperation(method, t.query)
	}
	return objectOperation(method, t.query, header)
}

func bucketOperation(method string, query url.Values) operation {
	sub := subresource(query, bucketResources)
	switch {
	case sub == "location" && method == http.MethodGet:
		return opGetBucketLocation
	case sub == "versioning" && method == http.MethodGet:
		return opGetBucketVersioning
	case sub == "versions" && method == http.MethodGet:
		return opListObjectVersions
	case sub == "delete" && method == http.MethodPost:
		return opDeleteObjects
	case sub == "acl" && method == http.MethodGet:
		return opGetBucketAcl
	case sub == "acl" && method == http.MethodPut:
		return opPutBucketAcl
	case sub != "":
		return operation{name: resourceName(method, sub, bucketResources[sub])}
	}
	switch method {
	case http.MethodGet:
		switch {
		case query.Has(paramSplits):
			return opSplitPoints
		case query.Get("list-type") == "2":
			return opListObjectsV2
		case query.Get("list-type") != "":
			return operation{name: "list-type=" + query.Get("list-type")}
		}
		return opListObjects
	case http.MethodHead:
		return opHeadBucket
	case http.MethodPut:
		return opCreateBucket
	case http.MethodDelete:
		return opDeleteBucket
	case http.MethodPost:
		return operation{name: "PostObject"}
	}
	return operation{name: method + " on a bucket"}
}

func objectOperation(method string, query url.Values, header http.Header) operation {
	switch sub := subresource(query, objectResources); {
	case sub == "acl" && method == http.MethodGet:
		return opGetObjectAcl
	case sub == "acl" && method == http.MethodPut:
		return opPutObjectAcl
	case sub != "":
		if name := multipartName(method, query, header); name != "" {
			return operation{name: name}
		}
		return operation{name: resourceName(method, sub, objectResources[sub])}
	}
	switch method {
	case http.MethodGet:
		return opGetObject
	case http.MethodHead:
		return opHeadObject
	case http.MethodPut:
		if header.Get(headerCopySource) != "" {
			return opCopyObject
		}
		return opPutObject
	case http.MethodDelete:
		return opDeleteObject
	}
	return operation{name: method + " on an object"}
}

// multipartName names what a request with an uploadId is about.
func multipartName(method string, query url.Values, header http.Header) string {
	if !query.Has("uploadId") {
		return ""
	}
	switch {
	case method == http.MethodPut && header.Get(headerCopySource) != "":
		return "UploadPartCopy"
	case method == http.MethodPut:
		return "UploadPart"
	case method == http.MethodGet:
		return "ListParts"
	case method == http.MethodDelete:
		return "AbortMultipartUpload"
	}
	return ""
}

// subresource returns the first parameter, in alphabetical order, that names a
// sub-resource.
func subresource(query url.Values, known map[string]string) string {
	var found []string
	for p := range query {
		if known[p] != "" {
			found = append(found, p)
		}
	}
	if len(found) == 0 {
		return ""
	}
	sort.Strings(found)
	return found[0]
}

func resourceName(method, sub, noun string) string {
	if method == http.MethodPost && postNames[sub] != "" {
		return postNames[sub]
	}
	if method == http.MethodGet && (sub == "uploads" || sub == "versions") {
		return "List" + noun
	}
	verb := method
	if method != "" {
		verb = method[:1] + strings.ToLower(method[1:])
	}
	return verb + noun
}

// refusedHeaders change what an operation means and are not implemented: to
// ignore them would be a wrong 200. The values listed are harmless.
var refusedHeaders = map[string][]string{
	// Of writes only; reads without a use for them may ignore them.
	"If-Match": nil, "If-None-Match": nil, "If-Modified-Since": nil, "If-Unmodified-Since": nil, "Range": nil,

	"X-Amz-Copy-Source-Range":                                     nil,
	"X-Amz-Copy-Source-Server-Side-Encryption-Customer-Algorithm": nil,
	"X-Amz-Object-Ownership":                                      {"BucketOwnerEnforced"},
	"X-Amz-Acl":                                                   {"private"},
	"X-Amz-Grant-Full-Control":                                    nil,
	"X-Amz-Grant-Read":                                            nil,
	"X-Amz-Grant-Read-Acp":                                        nil,
	"X-Amz-Grant-Write":                                           nil,
	"X-Amz-Grant-Write-Acp":                                       nil,
	"X-Amz-Bucket-Object-Lock-Enabled":                            {"false"},
	"X-Amz-Bypass-Governance-Retention":                           nil,
	"X-Amz-If-Match-Last-Modified-Time":                           nil,
	"X-Amz-If-Match-Size":                                         nil,
	"X-Amz-Mfa":                                                   nil,
	"X-Amz-Object-Lock-Legal-Hold":                                {"OFF"},
	"X-Amz-Object-Lock-Mode":                                      nil,
	"X-Amz-Object-Lock-Retain-Until-Date":                         nil,
	"X-Amz-Server-Side-Encryption":                                nil,
	"X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id":                 nil,
	"X-Amz-Server-Side-Encryption-Customer-Algorithm":             nil,
	"X-Amz-Storage-Class":                                         {"STANDARD"},
	"X-Amz-Tagging":                                               nil,
	"X-Amz-Website-Redirect-Location":                             nil,
	"X-Amz-Write-Offset-Bytes":                                    nil,
}

// refusedHeader returns the first header, in alphabetical order, that asks for
// something that is not implemented.
func refusedHeader(op operation, header http.Header) string {
	found := ""
	for name := range header {
		harmless, refused := refusedHeaders[name]
		if !strings.HasPrefix(name, "X-Amz-") && (!op.write || slices.Contains(op.conditions, name)) {
			continue
		}
		if !refused || (found != "" && name > found) {
			continue
		}
		bad := true
		for _, v := range harmless {
			bad = bad && header.Get(name) != v
		}
		if bad {
			found = name
		}
	}
	return found
}
