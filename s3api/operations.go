package s3api

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/internal/sigv4"
)

// operation is a kind of request, such as PutObject, with the properties by which the dispatcher handles the request.
// Operations are those of S3, and a few of evenkeel's own. The name appears in logs, metrics and answers of
// NotImplemented.
type operation struct {
	name string
	// serve does the work and writes the answer. If serve writes no answer and returns no error, the answer is 200. A
	// nil serve marks an operation that is not implemented.
	serve func(*Handler, *exchange) error
	// later is true if serve itself calls Handler.begin, after the body has arrived or memory for the answer was taken.
	// Otherwise the dispatcher calls Handler.begin.
	later bool
	// long is true for a read that may take long, such as a listing. The read is cancelled when its client closes the
	// connection.
	long bool
	// turns is true for an operation that builds a listing page or reads a document, which keeps a processor busy for
	// long. The operation first waits for a turn, which is a permit to do so.
	turns bool
	// write is true if the HTTP method changes something. Then the access key must be allowed to write, and after an
	// error the outcome of the operation may be unknown.
	write bool
	// conditions are those of the headers in refusedHeaders that this operation accepts.
	conditions []string
	// sub is the query parameter that names a sub-resource, e.g. acl. takes are the other query parameters that the
	// operation accepts. Any further parameter is refused (refuseParams).
	sub   string
	takes []string
	// scope says what the access key must be allowed to use: e.g. the whole bucket, or only the key of the request.
	scope scope
}

// asked is the key by which a request's operation is looked up: the HTTP method and sub. sub is the query parameter
// that names a sub-resource, such as acl. A few operations with the same method are distinguished by another text in
// sub.
type asked struct{ method, sub string }

// ofPuts are headers that operations accept when they write an object, though most other operations refuse them (see
// refusedHeaders). bothMatches are the conditions If-Match and If-None-Match.
var (
	ofPuts      = []string{"If-Match", "If-None-Match", headerTagging}
	bothMatches = ofPuts[:2]
)

// These are groups of query parameters that several operations accept.
var (
	ofVersions = []string{"versionId"}
	ofParts    = []string{"partNumber"}
	ofReads    = slices.AppendSeq([]string{"partNumber", "versionId"}, maps.Keys(overrides))
	// ofListings are the query parameters of all listings of keys, except the parameters for the position at which a
	// page begins. Three have no effect: Ceph's allow-unordered, and metadata and unsorted, which MinIO's clients send
	// to any server.
	ofListings = []string{
		"allow-unordered", "delimiter", "encoding-type", "fetch-owner", "max-keys", "metadata", "prefix", "unsorted",
	}
)

// These maps have the operations that are implemented, by HTTP method and sub-resource: operations on the service
// itself, on buckets and on objects. docs/s3.md describes them.
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
		// The parameter list-type may be sent without a value.
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
			takes: []string{"withUpdatedAt"}, // minio-go sends it to all servers, and needs no answer to it
		},
		{"DELETE", "lifecycle"}: {
			name: "DeleteBucketLifecycle", serve: (*Handler).deleteLifecycle, scope: onBucket,
		},
		{"PUT", "cors"}: {
			name: "PutBucketCors", serve: (*Handler).putCORS, later: true, scope: onBucket,
		},
		{"GET", "cors"}: {name: "GetBucketCors", serve: (*Handler).getCORS, scope: inBucket},
		{"DELETE", "cors"}: {
			name: "DeleteBucketCors", serve: (*Handler).deleteCORS, scope: onBucket,
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
			name: completeMultipartUpload, serve: (*Handler).completeUpload, later: true, scope: onKey,
			conditions: bothMatches,
		},
		{"DELETE", "uploadId"}: {
			name: "AbortMultipartUpload", serve: (*Handler).abortUpload, scope: onKey,
			conditions: []string{headerIfInitiated},
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
	// copyOperations are the operations that replace those in objectOperations if the request has the header that names
	// the source of a copy.
	copyOperations = map[asked]operation{
		{"PUT", ""}: {name: "CopyObject", serve: (*Handler).copyObject, scope: onKey, conditions: ofPuts},
		{"PUT", "uploadId"}: {
			name: "UploadPartCopy", serve: (*Handler).copyPart, scope: onKey, takes: ofParts,
			conditions: []string{headerCopyRange},
		},
	}
)

const (
	completeMultipartUpload = "CompleteMultipartUpload"
	getBucketLocation       = "GetBucketLocation"
	listV2                  = "list-type=2"
)

// listOf returns an operation that reads a listing and is served by serve. takes and more are the query parameters that
// it accepts.
func listOf(name string, serve func(*Handler, *exchange) error, takes []string, more ...string) operation {
	return operation{
		name: name, serve: serve, later: true, long: true, turns: true, scope: onListing, takes: slices.Concat(takes, more),
	}
}

// These maps have the sub-resources of buckets and objects, such as acl. They lead from the query parameter that names
// a sub-resource to S3's noun for it. The name of an operation that is not implemented consists of the HTTP method and
// the noun.
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
	// otherNames maps the name of an operation, made of method and noun, to S3's name of the operation if S3 has
	// another name.
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

// operationFor returns the operation that a request asks for by its method, target and headers. For an operation that
// is not implemented, the result has a name and a nil serve.
func operationFor(method string, t target, header http.Header) operation {
	if method == http.MethodOptions {
		return operation{name: "Preflight", serve: (*Handler).preflight}
	}
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
		if sub != listV2 { // listV2 is not the name of a parameter
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

// subOfBucket returns the text by which a request to a bucket is looked up in bucketOperations: the name of a
// sub-resource, or another text that distinguishes operations with the same method.
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

// subOfObject returns the name of the sub-resource by which a request to an object is looked up in objectOperations.
func subOfObject(method string, query url.Values) string {
	sub := subresource(query, objectResources)
	if _, ofUpload := objectOperations[asked{method, "uploadId"}]; ofUpload && query.Has("uploadId") {
		return "uploadId" // other sub-resources would precede it
	}
	if sub == "partNumber" && (method == http.MethodGet || method == http.MethodHead) {
		return ""
	}
	return sub
}

// refuseParams returns an error if the query has a parameter that the operation does not accept. S3 distinguishes most
// operations by their parameters alone. If the server ignored an unknown parameter, it could do something other than
// the client meant.
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

// isPresigned reports whether the query belongs to a presigned URL, which contains a signature of version 4 or 2. In a
// presigned URL, query parameters stand for headers.
func isPresigned(query url.Values) bool {
	return query.Has("X-Amz-Signature") || query.Has("Signature") && query.Has("AWSAccessKeyId")
}

// ofSignature reports whether name is a query parameter that any presigned URL may have. A parameter with x-amz- is
// part of a signature of version 4, or stands for a header. A URL with a signature of version 2 has other parameters,
// among them two headers that SDKs of AWS add.
func ofSignature(name string) bool {
	return slices.Contains([]string{"AWSAccessKeyId", "Signature", "Expires"}, name) ||
		sigv4.HoistedV2(name)
}

// ofLogs reports whether S3 ignores the query parameter with the given name, because clients use it to write remarks
// into S3's logs. The result is true for parameters that begin with x-, e.g. x-id, except
//   - parameters that begin with x-amz-, which stand for headers, and
//   - parameters that begin with x-evenkeel-, which are this server's own.
func ofLogs(name string) bool {
	return strings.HasPrefix(name, "x-") && !strings.HasPrefix(name, "x-amz-") && !strings.HasPrefix(name, "x-evenkeel-")
}

// subresource returns the query parameter that names a sub-resource, e.g. acl, or "" if the query has none. known has
// the names of all sub-resources. If the query has several, subresource returns the alphabetically first.
func subresource(query url.Values, known map[string]string) string {
	found := ""
	for p := range query {
		if known[p] != "" {
			found = firstOf(found, p)
		}
	}
	return found
}

// firstOf returns the alphabetically first of found and name, or name if found is empty.
func firstOf(found, name string) string { return min(cmp.Or(found, name), name) }

// refusedHeaders are headers that change the meaning of an operation and are not implemented. The server refuses a
// request with one of these headers, because ignoring the header would do something other than the client meant. Each
// header is mapped to its harmless values, which are accepted.
var refusedHeaders = map[string][]string{
	// The conditions and Range are refused in writes only, as a read either handles them or may ignore them.
	"If-Match": nil, "If-None-Match": nil, "If-Modified-Since": nil, "If-Unmodified-Since": nil, "Range": nil,

	"X-Amz-Copy-Source-Range":                         nil,
	"X-Amz-Bucket-Namespace":                          {"global"},
	"X-Amz-Object-Ownership":                          {"BucketOwnerEnforced"},
	"X-Amz-Acl":                                       {"private"},
	"X-Amz-Bucket-Object-Lock-Enabled":                {"false"},
	headerIfInitiated:                                 nil,
	headerIfModified:                                  nil,
	headerIfSize:                                      nil,
	"X-Amz-Object-Lock-Legal-Hold":                    {"OFF"},
	"X-Amz-Server-Side-Encryption-Bucket-Key-Enabled": {"false"},
	"X-Amz-Storage-Class":                             {"STANDARD"},
	"X-Amz-Tagging":                                   nil,
	"X-Amz-Website-Redirect-Location":                 nil,
	"X-Amz-Write-Offset-Bytes":                        nil,
}

// refusedKinds are beginnings of the names of headers. Headers with such names are refused like those in
// refusedHeaders. Each text begins the names of a family of headers to which S3 adds others over the years.
var refusedKinds = []string{
	"X-Amz-Copy-Source-Server-Side-Encryption", "X-Amz-Grant-", "X-Amz-Object-Lock-", "X-Amz-Server-Side-Encryption",
}

// refusedHeader returns the name of a header that the operation op does not implement, and because of which the server
// refuses the request. It returns "" if there is none, and the alphabetically first if there are several.
func refusedHeader(op operation, header http.Header) string {
	found := ""
	for name := range header {
		harmless, refused := refusedHeaders[name]
		ofKind := func(kind string) bool { return strings.HasPrefix(name, kind) }
		refused = refused || slices.ContainsFunc(refusedKinds, ofKind)
		if slices.Contains(op.conditions, name) || !op.write && !strings.HasPrefix(name, "X-Amz-") {
			continue
		}
		if refused && !slices.Contains(harmless, header.Get(name)) {
			found = firstOf(found, name)
		}
	}
	return found
}
