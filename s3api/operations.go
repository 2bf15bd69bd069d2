package s3api

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// operation is a request of S3's, or of evenkeel's own. Its name goes to logs, metrics and
// NotImplemented answers.
type operation struct {
	name string
	// serve is nil for what isn't implemented. What returns without an answer is answered 200.
	serve func(*Handler, *exchange) error
	// later: serve calls Handler.begin itself, after the body has arrived or memory for
	// the answer was taken.
	later bool
	// long: a read that may take long, so it ends when its client leaves.
	long bool
	// turns: a page or a document, which keeps a processor busy for long.
	turns bool
	// write, set by the method: needs a key that may write; an error may leave the outcome unknown.
	write bool
	// conditions are the headers that this operation accepts, of those that others refuse.
	conditions []string
	// scope is the part of the store that the key must be good for.
	scope scope
}

// asked is a method and a sub-resource, or what else tells operations of one method apart.
type asked struct{ method, sub string }

// ofPuts are If-Match and If-None-Match, and what else a new object may have.
var (
	ofPuts      = []string{"If-Match", "If-None-Match", headerTagging}
	bothMatches = ofPuts[:2]
)

// The operations that are implemented; docs/s3.md describes them.
var (
	serviceOperations = map[asked]operation{
		{"GET", ""}: {name: "ListBuckets", serve: (*Handler).listBuckets, later: true, long: true},
	}
	bucketOperations = map[asked]operation{
		{"PUT", ""}: {
			name: "CreateBucket", serve: (*Handler).createBucket, later: true, scope: onBucket,
		},
		{"HEAD", ""}:         {name: "HeadBucket", serve: (*Handler).headBucket, scope: inBucket},
		{"DELETE", ""}:       {name: "DeleteBucket", serve: (*Handler).deleteBucket, scope: onBucket},
		{"GET", ""}:          listOf("ListObjects", listIn(formV1)),
		{"GET", listV2}:      listOf("ListObjectsV2", listIn(formV2)),
		{"GET", "versions"}:  listOf("ListObjectVersions", listIn(formVersions)),
		{"GET", paramSplits}: listOf("EvenkeelSplitPoints", (*Handler).splitPoints),
		{"GET", "location"}:  {name: getBucketLocation, serve: (*Handler).getBucketLocation, scope: inBucket},
		{"PUT", "versioning"}: {
			name: "PutBucketVersioning", serve: (*Handler).putBucketVersioning, later: true, scope: onBucket,
		},
		{"GET", "versioning"}: {name: "GetBucketVersioning", serve: (*Handler).getBucketVersioning, scope: inBucket},
		{"PUT", "lifecycle"}: {
			name: "PutBucketLifecycleConfiguration", serve: (*Handler).putLifecycle, later: true, scope: onBucket,
		},
		{"GET", "lifecycle"}: {
			name: "GetBucketLifecycleConfiguration", serve: (*Handler).getLifecycle, scope: inBucket,
		},
		{"DELETE", "lifecycle"}: {
			name: "DeleteBucketLifecycle", serve: (*Handler).deleteLifecycle, scope: onBucket,
		},
		{"GET", "acl"}: {name: "GetBucketAcl", serve: (*Handler).getAcl, scope: inBucket},
		{"PUT", "acl"}: {
			name: "PutBucketAcl", serve: (*Handler).putAcl, later: true, scope: onBucket,
		},
		{"POST", "delete"}: {
			name: "DeleteObjects", serve: (*Handler).deleteObjects, turns: true, later: true, scope: inBucket,
		},
		{"POST", paramDeleteRange}: {
			name: "EvenkeelDeleteRange", serve: (*Handler).deleteRange, later: true, scope: onListing,
		},
		{"POST", ""}:       {name: "PostObject"},
		{"GET", "uploads"}: listOf("ListMultipartUploads", (*Handler).listUploads),
	}
	objectOperations = map[asked]operation{
		{"GET", ""}:  {name: "GetObject", serve: (*Handler).getObject, scope: onKey},
		{"HEAD", ""}: {name: "HeadObject", serve: (*Handler).getObject, scope: onKey},
		{"PUT", ""}: {
			name: "PutObject", serve: (*Handler).putObject, later: true, scope: onKey, conditions: ofPuts,
		},
		{"PUT", headerCopySource}: {
			name: "CopyObject", serve: (*Handler).copyObject, scope: onKey, conditions: ofPuts,
		},
		{"DELETE", ""}: {
			name: "DeleteObject", serve: (*Handler).deleteObject, scope: onKey,
			conditions: []string{"If-Match", headerIfSize, headerIfModified},
		},
		{"POST", "uploads"}: {
			name: "CreateMultipartUpload", serve: (*Handler).createUpload, scope: onKey,
			conditions: ofPuts[2:],
		},
		{"PUT", "uploadId"}: {
			name: "UploadPart", serve: (*Handler).uploadPart, later: true, scope: onKey,
		},
		{"PUT", uploadCopy}: {
			name: "UploadPartCopy", serve: (*Handler).copyPart, scope: onKey,
			conditions: []string{headerCopyRange},
		},
		{"POST", "uploadId"}: {
			name: "CompleteMultipartUpload", serve: (*Handler).completeUpload, later: true, scope: onKey,
			conditions: bothMatches,
		},
		{"DELETE", "uploadId"}: {
			name: "AbortMultipartUpload", serve: (*Handler).abortUpload, scope: onKey,
		},
		{"GET", "uploadId"}: {name: "ListParts", serve: (*Handler).listParts, later: true, scope: onKey},
		{"GET", "attributes"}: {
			name: "GetObjectAttributes", serve: (*Handler).getAttributes, later: true, scope: onKey,
		},
		{"GET", "tagging"}: {name: "GetObjectTagging", serve: (*Handler).getObjectTagging, scope: onKey},
		{"PUT", "tagging"}: {
			name: "PutObjectTagging", serve: (*Handler).putObjectTagging, later: true, scope: onKey,
		},
		{"DELETE", "tagging"}: {
			name: "DeleteObjectTagging", serve: (*Handler).deleteObjectTagging, scope: onKey,
		},
		{"GET", "acl"}: {name: "GetObjectAcl", serve: (*Handler).getAcl, scope: onKey},
		{"PUT", "acl"}: {name: "PutObjectAcl", serve: (*Handler).putAcl, later: true, scope: onKey},
	}
)

const (
	getBucketLocation = "GetBucketLocation"
	listV2            = "list-type=2"
	uploadCopy        = "uploadId, from a source"
)

func listOf(name string, serve func(*Handler, *exchange) error) operation {
	return operation{name: name, serve: serve, later: true, long: true, turns: true, scope: onListing}
}

// Query parameters that name a sub-resource of a bucket or an object, with S3's
// noun for it. The operation's name is made of the method and the noun.
var (
	bucketResources = map[string]string{
		"accelerate": "BucketAccelerateConfiguration", "acl": "BucketAcl", "analytics": "BucketAnalyticsConfiguration",
		"cors": "BucketCors", "encryption": "BucketEncryption",
		"intelligent-tiering": "BucketIntelligentTieringConfiguration",
		"inventory":           "BucketInventoryConfiguration", "lifecycle": "BucketLifecycleConfiguration",
		"location": "BucketLocation",
		"logging":  "BucketLogging", "metadataConfiguration": "BucketMetadataConfiguration",
		"metadataTable": "BucketMetadataTableConfiguration",
		"metrics":       "BucketMetricsConfiguration", "notification": "BucketNotificationConfiguration",
		"object-lock":       "ObjectLockConfiguration",
		"ownershipControls": "BucketOwnershipControls", "policy": "BucketPolicy", "policyStatus": "BucketPolicyStatus",
		"publicAccessBlock": "PublicAccessBlock", "replication": "BucketReplication",
		"requestPayment": "BucketRequestPayment",
		"session":        "Session", "tagging": "BucketTagging", "uploads": "MultipartUploads",
		"versioning": "BucketVersioning",
		"versions":   "ObjectVersions", "website": "BucketWebsite", "delete": "Objects", "events": "BucketNotification",
	}
	objectResources = map[string]string{
		"acl": "ObjectAcl", "attributes": "ObjectAttributes", "legal-hold": "ObjectLegalHold", "partNumber": "ObjectPart",
		"renameObject": "RenameObject", "restore": "RestoreObject", "retention": "ObjectRetention",
		"select":  "SelectObjectContent",
		"tagging": "ObjectTagging", "torrent": "ObjectTorrent", "uploadId": "MultipartUpload", "uploads": "MultipartUpload",
		"append": "AppendObject",
	}
	// otherNames are the names that are not made of method and noun.
	otherNames = map[asked]string{
		{"POST", "uploads"}: "CreateMultipartUpload", {"POST", "uploadId"}: "CompleteMultipartUpload",
		{"POST", "restore"}: "RestoreObject", {"POST", "select"}: "SelectObjectContent",
		{"GET", "uploads"}: "ListMultipartUploads", {"GET", "uploadId"}: "ListParts",
		{"PUT", "uploadId"}: "UploadPart", {"DELETE", "uploadId"}: "AbortMultipartUpload",
	}
)

// operationFor finds the operation of a request. One that is not implemented has a name and
// no serve.
func operationFor(method string, t target, header http.Header) operation {
	op := findOperation(method, t, header)
	op.write = method != http.MethodGet && method != http.MethodHead
	return op
}

func findOperation(method string, t target, header http.Header) operation {
	switch {
	case t.bucket == "":
		sub := subresource(t.query, bucketResources)
		if op, ok := serviceOperations[asked{method, sub}]; ok {
			return op
		}
		return operation{name: method + " on the service"}
	case t.key == "":
		sub := subresource(t.query, bucketResources)
		if sub == "" && method == http.MethodGet {
			switch kind := t.query.Get("list-type"); {
			case t.query.Has(paramSplits):
				sub = paramSplits
			case kind == "2":
				sub = listV2
			case kind != "":
				return operation{name: "list-type=" + kind}
			}
		}
		if sub == "" && method == http.MethodPost && t.query.Has(paramDeleteRange) {
			sub = paramDeleteRange
		}
		if op, ok := bucketOperations[asked{method, sub}]; ok {
			return op
		}
		if sub == "" {
			return operation{name: method + " on a bucket"}
		}
		return operation{name: resourceName(method, sub, bucketResources[sub])}
	}
	sub := subresource(t.query, objectResources)
	if sub == "" && method == http.MethodPut && header.Get(headerCopySource) != "" {
		sub = headerCopySource
	}
	switch {
	case t.query.Has("uploadId") && method == http.MethodPut && header.Get(headerCopySource) != "":
		sub = uploadCopy
	case t.query.Has("uploadId") && otherNames[asked{method, "uploadId"}] != "":
		sub = "uploadId" // there are other parameters before it
	case sub == "partNumber" && (method == http.MethodGet || method == http.MethodHead):
		sub = ""
	}
	if op, ok := objectOperations[asked{method, sub}]; ok {
		return op
	}
	if sub == "" {
		return operation{name: method + " on an object"}
	}
	return operation{name: resourceName(method, sub, objectResources[sub])}
}

// subresource returns the first parameter, in alphabetical order, that names a
// sub-resource.
func subresource(query url.Values, known map[string]string) string {
	found := ""
	for p := range query {
		if known[p] != "" {
			found = firstOf(found, p)
		}
	}
	return found
}

// firstOf returns the first of two names in alphabetical order; found may be empty.
func firstOf(found, name string) string { return min(cmp.Or(found, name), name) }

func resourceName(method, sub, noun string) string {
	if name := otherNames[asked{method, sub}]; name != "" || method == "" {
		return cmp.Or(name, noun)
	}
	return method[:1] + strings.ToLower(method[1:]) + noun
}

// refusedHeaders change the meaning of an operation and are not implemented, so they can't
// be ignored. The values listed are harmless.
var refusedHeaders = map[string][]string{
	// Of writes only: reads may ignore them.
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
	headerIfModified:                                              nil,
	headerIfSize:                                                  nil,
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

// refusedHeader returns the first header, in alphabetical order, whose meaning is not
// implemented.
func refusedHeader(op operation, header http.Header) string {
	found := ""
	for name := range header {
		harmless, refused := refusedHeaders[name]
		if slices.Contains(op.conditions, name) || !op.write && !strings.HasPrefix(name, "X-Amz-") {
			continue
		}
		if refused && !slices.Contains(harmless, header.Get(name)) {
			found = firstOf(found, name)
		}
	}
	return found
}
