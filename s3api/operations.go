package s3api

import (
	"cmp"
	"fmt"
	"maps"
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
	// sub, set by the request, is the parameter that names a sub-resource. takes are the operation's
	// query parameters beside that: all others are refused (refuseParams).
	sub   string
	takes []string
	// scope is the part of the store that the key must be good for.
	scope scope
}

// asked is a method and a parameter that names a sub-resource, or what else tells operations of one
// method apart.
type asked struct{ method, sub string }

// ofPuts are If-Match and If-None-Match, and what else a new object may have.
var (
	ofPuts      = []string{"If-Match", "If-None-Match", headerTagging}
	bothMatches = ofPuts[:2]
)

// The query parameters that several operations take.
var (
	ofVersions = []string{"versionId"}
	ofParts    = []string{"partNumber"}
	ofReads    = slices.AppendSeq([]string{"partNumber", "versionId"}, maps.Keys(overrides))
	// ofListings are those of all listings of keys, beside where a page begins. Some are wishes that
	// change nothing: Ceph's allow-unordered, and metadata and unsorted, which MinIO's clients send
	// to any server.
	ofListings = []string{
		"allow-unordered", "delimiter", "encoding-type", "fetch-owner", "max-keys", "metadata", "prefix", "unsorted",
	}
)

// The operations that are implemented; docs/s3.md describes them.
var (
	serviceOperations = map[asked]operation{
		{"GET", ""}: {
			name: "ListBuckets", serve: (*Handler).listBuckets, later: true, long: true,
			takes: []string{"bucket-region", "continuation-token", "max-buckets", "prefix"},
		},
	}
	bucketOperations = map[asked]operation{
		{"PUT", ""}: {
			name: "CreateBucket", serve: (*Handler).createBucket, later: true, scope: onBucket,
			takes: []string{paramCuts},
		},
		{"HEAD", ""}:   {name: "HeadBucket", serve: (*Handler).headBucket, scope: inBucket},
		{"DELETE", ""}: {name: "DeleteBucket", serve: (*Handler).deleteBucket, scope: onBucket},
		// list-type may be there without a value.
		{"GET", ""}: listOf("ListObjects", listIn(formV1), ofListings, "list-type", "marker"),
		{"GET", listV2}: listOf("ListObjectsV2", listIn(formV2), ofListings, "continuation-token", "list-type",
			"start-after", paramFrom, paramReverse, paramTo),
		{"GET", "versions"}: listOf("ListObjectVersions", listIn(formVersions), ofListings, "key-marker",
			"version-id-marker"),
		{"GET", paramSplits}: listOf("EvenkeelSplitPoints", (*Handler).splitPoints, ofListings, "list-type",
			"start-after", paramFrom, paramReverse, paramTo),
		{"GET", "location"}: {name: getBucketLocation, serve: (*Handler).getBucketLocation, scope: inBucket},
		{"PUT", "versioning"}: {
			name: "PutBucketVersioning", serve: (*Handler).putBucketVersioning, later: true, scope: onBucket,
		},
		{"GET", "versioning"}: {name: "GetBucketVersioning", serve: (*Handler).getBucketVersioning, scope: inBucket},
		{"PUT", "lifecycle"}: {
			name: "PutBucketLifecycleConfiguration", serve: (*Handler).putLifecycle, later: true, scope: onBucket,
		},
		{"GET", "lifecycle"}: {
			name: "GetBucketLifecycleConfiguration", serve: (*Handler).getLifecycle, scope: inBucket,
			takes: []string{"withUpdatedAt"}, // minio-go sends it to all servers, and does without the answer
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
			takes: append([]string{"encoding-type", "prefix", paramFrom, paramTo}, notOfDeletes...),
		},
		{"POST", ""}: {name: "PostObject"},
		{"GET", "uploads"}: listOf("ListMultipartUploads", (*Handler).listUploads, nil, "delimiter", "encoding-type",
			"key-marker", "max-uploads", "prefix", "upload-id-marker"),
	}
	objectOperations = map[asked]operation{
		{"GET", ""}:  {name: "GetObject", serve: (*Handler).getObject, scope: onKey, takes: ofReads},
		{"HEAD", ""}: {name: "HeadObject", serve: (*Handler).getObject, scope: onKey, takes: ofReads},
		{"PUT", ""}: {
			name: "PutObject", serve: (*Handler).putObject, later: true, scope: onKey, conditions: ofPuts,
		},
		{"DELETE", ""}: {
			name: "DeleteObject", serve: (*Handler).deleteObject, scope: onKey,
			conditions: []string{"If-Match", headerIfSize, headerIfModified}, takes: ofVersions,
		},
		{"POST", "uploads"}: {
			name: "CreateMultipartUpload", serve: (*Handler).createUpload, scope: onKey,
			conditions: ofPuts[2:],
		},
		{"PUT", "uploadId"}: {
			name: "UploadPart", serve: (*Handler).uploadPart, later: true, scope: onKey, takes: ofParts,
		},
		{"POST", "uploadId"}: {
			name: "CompleteMultipartUpload", serve: (*Handler).completeUpload, later: true, scope: onKey,
			conditions: bothMatches,
		},
		{"DELETE", "uploadId"}: {
			name: "AbortMultipartUpload", serve: (*Handler).abortUpload, scope: onKey,
		},
		{"GET", "uploadId"}: {
			name: "ListParts", serve: (*Handler).listParts, later: true, scope: onKey,
			takes: []string{"max-parts", "part-number-marker"},
		},
		{"GET", "attributes"}: {
			name: "GetObjectAttributes", serve: (*Handler).getAttributes, later: true, scope: onKey, takes: ofVersions,
		},
		{"GET", "tagging"}: {
			name: "GetObjectTagging", serve: (*Handler).getObjectTagging, scope: onKey, takes: ofVersions,
		},
		{"PUT", "tagging"}: {
			name: "PutObjectTagging", serve: (*Handler).putObjectTagging, later: true, scope: onKey, takes: ofVersions,
		},
		{"DELETE", "tagging"}: {
			name: "DeleteObjectTagging", serve: (*Handler).deleteObjectTagging, scope: onKey, takes: ofVersions,
		},
		{"GET", "acl"}: {name: "GetObjectAcl", serve: (*Handler).getAcl, scope: onKey, takes: ofVersions},
		{"PUT", "acl"}: {
			name: "PutObjectAcl", serve: (*Handler).putAcl, later: true, scope: onKey, takes: ofVersions,
		},
	}
	// copyOperations are those of objectOperations that a header with a source makes others.
	copyOperations = map[asked]operation{
		{"PUT", ""}: {name: "CopyObject", serve: (*Handler).copyObject, scope: onKey, conditions: ofPuts},
		{"PUT", "uploadId"}: {
			name: "UploadPartCopy", serve: (*Handler).copyPart, scope: onKey, takes: ofParts,
			conditions: []string{headerCopyRange},
		},
	}
)

const (
	getBucketLocation = "GetBucketLocation"
	listV2            = "list-type=2"
)

func listOf(name string, serve func(*Handler, *exchange) error, takes []string, more ...string) operation {
	return operation{
		name: name, serve: serve, later: true, long: true, turns: true, scope: onListing, takes: slices.Concat(takes, more),
	}
}

// Query parameters that name a sub-resource of a bucket or an object, with S3's noun for it. The
// name of an operation that is not implemented is made of the method and the noun.
var (
	bucketResources = map[string]string{
		"abac": "BucketAbac", "accelerate": "BucketAccelerateConfiguration", "acl": "BucketAcl",
		"analytics": "BucketAnalyticsConfiguration", "cors": "BucketCors", "delete": "Objects",
		"encryption": "BucketEncryption", "events": "BucketNotification",
		"intelligent-tiering": "BucketIntelligentTieringConfiguration", "inventory": "BucketInventoryConfiguration",
		"lifecycle": "BucketLifecycleConfiguration", "location": "BucketLocation", "logging": "BucketLogging",
		"metadataAnnotationTable": "BucketMetadataAnnotationTableConfiguration",
		"metadataConfiguration":   "BucketMetadataConfiguration",
		"metadataInventoryTable":  "BucketMetadataInventoryTableConfiguration",
		"metadataJournalTable":    "BucketMetadataJournalTableConfiguration",
		"metadataTable":           "BucketMetadataTableConfiguration", "metrics": "BucketMetricsConfiguration",
		"notification": "BucketNotificationConfiguration", "object-lock": "ObjectLockConfiguration",
		"ownershipControls": "BucketOwnershipControls", "policy": "BucketPolicy", "policyStatus": "BucketPolicyStatus",
		"publicAccessBlock": "PublicAccessBlock", "replication": "BucketReplication",
		"requestPayment": "BucketRequestPayment", "session": "Session", "tagging": "BucketTagging",
		"uploads": "MultipartUploads", "versioning": "BucketVersioning", "versions": "ObjectVersions",
		"website": "BucketWebsite",
	}
	objectResources = map[string]string{
		"acl": "ObjectAcl", "annotation": "ObjectAnnotation", "append": "AppendObject", "attributes": "ObjectAttributes",
		"encryption": "ObjectEncryption", "legal-hold": "ObjectLegalHold", "partNumber": "ObjectPart",
		"renameObject": "RenameObject", "restore": "RestoreObject", "retention": "ObjectRetention",
		"select": "SelectObjectContent", "tagging": "ObjectTagging", "torrent": "ObjectTorrent",
		"uploadId": "MultipartUpload", "uploads": "MultipartUpload",
	}
	// otherNames are S3's names that are not made of method and noun.
	otherNames = map[string]string{
		"GetSession":                                    "CreateSession",
		"PostBucketMetadataConfiguration":               "CreateBucketMetadataConfiguration",
		"PostBucketMetadataTableConfiguration":          "CreateBucketMetadataTableConfiguration",
		"PostRestoreObject":                             "RestoreObject",
		"PostSelectObjectContent":                       "SelectObjectContent",
		"PutBucketMetadataAnnotationTableConfiguration": "UpdateBucketMetadataAnnotationTableConfiguration",
		"PutBucketMetadataInventoryTableConfiguration":  "UpdateBucketMetadataInventoryTableConfiguration",
		"PutBucketMetadataJournalTableConfiguration":    "UpdateBucketMetadataJournalTableConfiguration",
		"PutObjectEncryption":                           "UpdateObjectEncryption",
		"PutRenameObject":                               "RenameObject",
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
	operations, resources, of, sub := serviceOperations, map[string]string(nil), "the service", ""
	switch {
	case t.key != "":
		operations, resources, of, sub = objectOperations, objectResources, "an object", subOfObject(method, t.query)
		_, copies := header[headerCopySource]
		if _, can := copyOperations[asked{method, sub}]; copies && can {
			operations = copyOperations
		}
	case t.bucket != "":
		operations, resources, of, sub = bucketOperations, bucketResources, "a bucket", subOfBucket(method, t.query)
	}
	if op, ok := operations[asked{method, sub}]; ok {
		if sub != listV2 { // which is no parameter's name
			op.sub = sub
		}
		return op
	}
	switch noun := resources[sub]; {
	case sub == "":
		return operation{name: method + " on " + of}
	case noun == "":
		return operation{name: sub}
	default:
		name := method[:1] + strings.ToLower(method[1:]) + noun
		return operation{name: cmp.Or(otherNames[name], name)}
	}
}

func subOfBucket(method string, query url.Values) string {
	sub := subresource(query, bucketResources)
	switch {
	case sub != "":
		return sub
	case method == http.MethodGet && query.Has(paramSplits):
		return paramSplits
	case method == http.MethodGet && query.Get("list-type") != "":
		return "list-type=" + query.Get("list-type")
	case method == http.MethodPost && query.Has(paramDeleteRange):
		return paramDeleteRange
	}
	return ""
}

func subOfObject(method string, query url.Values) string {
	sub := subresource(query, objectResources)
	if _, ofUpload := objectOperations[asked{method, "uploadId"}]; ofUpload && query.Has("uploadId") {
		return "uploadId" // there are other parameters before it
	}
	if sub == "partNumber" && (method == http.MethodGet || method == http.MethodHead) {
		return ""
	}
	return sub
}

// refuseParams refuses parameters that the operation does not take. A parameter that is not known
// may ask for anything: S3 tells most operations apart by parameters alone, so what passed one
// over would put, delete or answer something else than was meant.
func (op *operation) refuseParams(query url.Values) *Error {
	signed := isPresigned(query)
	for _, name := range slices.Sorted(maps.Keys(query)) {
		taken := name != "" && name == op.sub || slices.Contains(op.takes, name)
		switch {
		case taken && len(query[name]) > 1:
			return invalidArgument("The parameter %s is there %d times.", name, len(query[name]))
		case taken, signed && ofSignature(name), ofLogs(name):
		case name == "versionId":
			return invalidArgument("This operation does not accept a version-id.")
		default:
			return notImplemented(fmt.Sprintf("%s with the parameter %.64q", op.name, name))
		}
	}
	return nil
}

// isPresigned reports whether a URL has a signature, by version 4 or 2, with parameters that stand
// for headers.
func isPresigned(query url.Values) bool {
	return query.Has("X-Amz-Signature") || query.Has("Signature") && query.Has("AWSAccessKeyId")
}

// ofSignature reports whether a parameter belongs to a presigned URL: those of version 2, where
// botocore adds two headers, and x-amz-, as of the signature or for a header.
func ofSignature(name string) bool {
	return slices.Contains([]string{"AWSAccessKeyId", "Signature", "Expires", "content-md5", "content-type"}, name) ||
		len(name) > 6 && strings.EqualFold(name[:6], "x-amz-")
}

// ofLogs reports whether S3 reserves a parameter for notes of clients to its logs, and ignores it.
// x-id, by which SDKs name their operations, is one. Those that stand for headers are none.
func ofLogs(name string) bool {
	return strings.HasPrefix(name, "x-") && !strings.HasPrefix(name, "x-amz-") && !strings.HasPrefix(name, "x-evenkeel-")
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
	"X-Amz-If-Match-Initiated-Time":                               nil, // of uploads that are aborted
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
