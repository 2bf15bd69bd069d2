# What a boto3 program does with listings, against a running listd. Usage:
#   boto.py ENDPOINT BUCKET KEYS_FILE signed|unsigned
# KEYS_FILE has one key per line: what the bucket holds. Fails with a message.
import random
import sys

import boto3
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError

endpoint, bucket, keys_file, how = sys.argv[1:]
config = Config(s3={"addressing_style": "path"}, retries={"max_attempts": 2})
if how == "unsigned":
    config = config.merge(Config(signature_version=UNSIGNED))
s3 = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", config=config,
                  aws_access_key_id="any", aws_secret_access_key="any")


def expect(want, got, what):
    if want != got:
        sys.exit("%s (%s): want %.300r, got %.300r" % (what, how, want, got))


def refused(code, call, **arguments):
    try:
        call(**arguments)
    except ClientError as e:
        expect(code, e.response["Error"]["Code"], "error of %s" % arguments)
        return
    sys.exit("%s was not refused with %s" % (arguments, code))


def listing(**arguments):
    """Keys and common prefixes, page by page, by hand."""
    keys, prefixes, pages = [], [], 0
    while True:
        page = s3.list_objects_v2(Bucket=bucket, **arguments)
        pages += 1
        expect(page["KeyCount"], len(page.get("Contents", [])) + len(page.get("CommonPrefixes", [])), "KeyCount")
        keys += [c["Key"] for c in page.get("Contents", [])]
        prefixes += [p["Prefix"] for p in page.get("CommonPrefixes", [])]
        expect(page["IsTruncated"], "NextContinuationToken" in page, "IsTruncated")
        if not page["IsTruncated"]:
            return keys, prefixes, pages
        arguments["ContinuationToken"] = page["NextContinuationToken"]


with open(keys_file, encoding="utf-8", newline="\n") as f:
    want = [line[:-1] for line in f]
want.sort(key=lambda k: k.encode())

keys, prefixes, pages = listing()
expect(want, keys, "the whole listing")
expect(-(-len(want) // 1000), pages, "pages of 1000")
expect(want, listing(MaxKeys=333)[0], "pages of 333")
expect(want[100:], listing(StartAfter=want[99])[0], "start-after")
expect(want, [c["Key"] for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket) for c in page["Contents"]], "the paginator")

for paginator, name in (("list_objects", "Contents"), ("list_object_versions", "Versions")):
    for size in (1000, 333):
        pages = s3.get_paginator(paginator).paginate(Bucket=bucket, PaginationConfig={"PageSize": size})
        expect(want, [c["Key"] for page in pages for c in page[name]], paginator)
    pages = s3.get_paginator(paginator).paginate(Bucket=bucket, Delimiter="/", PaginationConfig={"PageSize": 2})
    expect(sorted({k.split("/")[0] + "/" for k in want if "/" in k}, key=lambda k: k.encode()),
           [p["Prefix"] for page in pages for p in page.get("CommonPrefixes", [])], paginator + " by delimiter")

for prefix in ("", "/", "/usr/", "dir one/", "a+b/", "ü/", "none/"):
    mine = [k for k in want if k.startswith(prefix)]
    cut = sorted({prefix + k[len(prefix):].split("/")[0] + "/" for k in mine if "/" in k[len(prefix):]}, key=lambda k: k.encode())
    keys, prefixes, _ = listing(Prefix=prefix, Delimiter="/", MaxKeys=7)
    expect([k for k in mine if "/" not in k[len(prefix):]], keys, "keys under %r" % prefix)
    expect(cut, prefixes, "common prefixes under %r" % prefix)

other = bucket + "-" + how
s3.create_bucket(Bucket=other)
s3.create_bucket(Bucket=other)  # as in the region us-east-1
expect(True, other in [b["Name"] for b in s3.list_buckets()["Buckets"]], "list_buckets")
for key in ("plain", "a b+c%2F//../ü&<>", "line\nfeed", "//", "..", "é" * 512):
    put = s3.put_object(Bucket=other, Key=key, Body=key.encode(), ContentType="text/x", Metadata={"name": "value"})
    got = s3.get_object(Bucket=other, Key=key)
    expect(key.encode(), got["Body"].read(), "the body of %r" % key)
    expect((put["ETag"], "text/x", {"name": "value"}), (got["ETag"], got["ContentType"], got["Metadata"]), "what describes %r" % key)
    expect(len(key.encode()), s3.head_object(Bucket=other, Key=key)["ContentLength"], "the length of %r" % key)
    expect([key], [c["Key"] for c in s3.list_objects_v2(Bucket=other)["Contents"]], "the listing of %r" % key)
    refused("BucketNotEmpty", s3.delete_bucket, Bucket=other)
    s3.delete_object(Bucket=other, Key=key)
etag = s3.put_object(Bucket=other, Key="plain", Body=b"hello")["ETag"]
refused("304", s3.get_object, Bucket=other, Key="plain", IfNoneMatch=etag)
refused("PreconditionFailed", s3.get_object, Bucket=other, Key="plain", IfMatch="other")
expect(b"ell", s3.get_object(Bucket=other, Key="plain", Range="bytes=1-3")["Body"].read(), "a range")
refused("InvalidRange", s3.get_object, Bucket=other, Key="plain", Range="bytes=5-")
s3.copy_object(Bucket=other, Key="copy ü+", CopySource={"Bucket": other, "Key": "plain"})
s3.copy_object(Bucket=other, Key="copy 2", CopySource={"Bucket": other, "Key": "copy ü+"})
expect(b"hello", s3.get_object(Bucket=other, Key="copy 2")["Body"].read(), "a copy of a copy")
gone = s3.delete_objects(Bucket=other, Delete={"Objects": [{"Key": k} for k in ("plain", "copy ü+", "copy 2", "none")]})
expect(["plain", "copy ü+", "copy 2", "none"], [d["Key"] for d in gone["Deleted"]], "delete_objects")
expect(None, s3.get_bucket_versioning(Bucket=other).get("Status"), "versioning")
large = random.randbytes(3_000_000)
s3.put_object(Bucket=other, Key="large", Body=large, ChecksumAlgorithm="SHA256")
expect(large, s3.get_object(Bucket=other, Key="large", ChecksumMode="ENABLED")["Body"].read(), "a large body")
expect(large[5:-7], s3.get_object(Bucket=other, Key="large", Range="bytes=5-%d" % (len(large) - 8))["Body"].read(), "a range")
expect(True, "ChecksumSHA256" in s3.head_object(Bucket=other, Key="large", ChecksumMode="ENABLED"), "its checksum")
s3.copy_object(Bucket=other, Key="large 2", CopySource={"Bucket": other, "Key": "large"})
expect(large, s3.get_object(Bucket=other, Key="large 2")["Body"].read(), "a large copy")
for key in ("large", "large 2"):
    s3.delete_object(Bucket=other, Key=key)

kept = other + "-versions"
s3.create_bucket(Bucket=kept)
s3.put_object(Bucket=kept, Key="a", Body=b"before")
s3.put_bucket_versioning(Bucket=kept, VersioningConfiguration={"Status": "Enabled"})
expect("Enabled", s3.get_bucket_versioning(Bucket=kept)["Status"], "versioning")
ids = ["null"] + [s3.put_object(Bucket=kept, Key="a", Body=b"%d" % n)["VersionId"] for n in range(5)]
marker = s3.delete_object(Bucket=kept, Key="a")
expect(True, marker["DeleteMarker"], "a delete marker")
refused("NoSuchKey", s3.get_object, Bucket=kept, Key="a")
refused("MethodNotAllowed", s3.get_object, Bucket=kept, Key="a", VersionId=marker["VersionId"])
expect(b"before", s3.get_object(Bucket=kept, Key="a", VersionId="null")["Body"].read(), "the null version")
expect(b"3", s3.get_object(Bucket=kept, Key="a", VersionId=ids[4])["Body"].read(), "a version")
for size in (1, 2, 1000):
    seen = []
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=kept, PaginationConfig={"PageSize": size}):
        seen += [(v["VersionId"], v["IsLatest"]) for v in page.get("DeleteMarkers", []) + page.get("Versions", [])]
    expect([(marker["VersionId"], True)] + [(v, False) for v in reversed(ids)], seen, "versions by %d" % size)
s3.delete_object(Bucket=kept, Key="a", VersionId=marker["VersionId"])
expect(b"4", s3.get_object(Bucket=kept, Key="a")["Body"].read(), "the version below the marker")
s3.copy_object(Bucket=kept, Key="a", CopySource={"Bucket": kept, "Key": "a", "VersionId": ids[1]})
expect(b"0", s3.get_object(Bucket=kept, Key="a")["Body"].read(), "a version that was restored")
s3.put_bucket_versioning(Bucket=kept, VersioningConfiguration={"Status": "Suspended"})
expect(False, "VersionId" in s3.put_object(Bucket=kept, Key="a", Body=b"after"), "a version id while suspended")
expect("null", s3.head_object(Bucket=kept, Key="a")["VersionId"], "the null version")
refused("BucketNotEmpty", s3.delete_bucket, Bucket=kept)
while True:
    page = s3.list_object_versions(Bucket=kept)
    all_of_it = [{"Key": v["Key"], "VersionId": v["VersionId"]} for v in page.get("DeleteMarkers", []) + page.get("Versions", [])]
    if not all_of_it:
        break
    gone = s3.delete_objects(Bucket=kept, Delete={"Objects": all_of_it}, BypassGovernanceRetention=True)
    expect([], gone.get("Errors", []), "versions that can't be deleted")
s3.delete_bucket(Bucket=kept)
refused("KeyTooLongError", s3.put_object, Bucket=other, Key="k" * 1025, Body=b"")
refused("NoSuchKey", s3.get_object, Bucket=other, Key="plain")
refused("NoSuchKey", s3.get_object_acl, Bucket=other, Key="plain")
for acl in (s3.get_bucket_acl(Bucket=bucket), s3.get_object_acl(Bucket=bucket, Key=want[0])):
    owner = acl["Owner"]["ID"]
    expect([("CanonicalUser", owner, "FULL_CONTROL")], [(g["Grantee"]["Type"], g["Grantee"]["ID"], g["Permission"]) for g in acl["Grants"]], "the ACL")
s3.put_object_acl(Bucket=bucket, Key=want[0], ACL="private")
refused("NotImplemented", s3.put_object_acl, Bucket=bucket, Key=want[0], ACL="public-read")
upload = {"Bucket": other, "Key": "in parts", "UploadId": s3.create_multipart_upload(Bucket=other, Key="in parts")["UploadId"]}
pieces = [b"1" * (5 << 20), b"the end"]
parts = [{"PartNumber": i + 1, "ETag": s3.upload_part(PartNumber=i + 1, Body=piece, **upload)["ETag"]} for i, piece in enumerate(pieces)]
expect(parts, [{k: p[k] for k in ("PartNumber", "ETag")} for p in s3.list_parts(**upload)["Parts"]], "the parts")
refused("InvalidPartOrder", s3.complete_multipart_upload, MultipartUpload={"Parts": parts[::-1]}, **upload)
s3.complete_multipart_upload(MultipartUpload={"Parts": parts}, **upload)
expect(b"".join(pieces), s3.get_object(Bucket=other, Key="in parts")["Body"].read(), "the object of the parts")
refused("NoSuchUpload", s3.abort_multipart_upload, **upload)
s3.delete_object(Bucket=other, Key="in parts")
refused("NotImplemented", s3.create_multipart_upload, Bucket=bucket, Key="in a plain bucket")
rules = [
    {"ID": "old", "Filter": {"And": {"Prefix": "logs/", "ObjectSizeGreaterThan": 9}}, "Status": "Enabled", "Expiration": {"Days": 30}},
    {"ID": "versions", "Filter": {}, "Status": "Enabled", "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7},
     "NoncurrentVersionExpiration": {"NoncurrentDays": 3, "NewerNoncurrentVersions": 2}},
    {"ID": "first form", "Prefix": "tmp/", "Status": "Disabled", "Expiration": {"ExpiredObjectDeleteMarker": True}},
]
refused("NoSuchLifecycleConfiguration", s3.get_bucket_lifecycle_configuration, Bucket=other)
s3.put_bucket_lifecycle_configuration(Bucket=other, LifecycleConfiguration={"Rules": rules})
expect(rules, s3.get_bucket_lifecycle_configuration(Bucket=other)["Rules"], "the rules of the bucket")
expect(True, 'rule-id="old"' in s3.put_object(Bucket=other, Key="logs/a", Body=b"0123456789")["Expiration"], "a put tells when")
s3.delete_object(Bucket=other, Key="logs/a")
s3.delete_bucket_lifecycle(Bucket=other)
refused("NoSuchLifecycleConfiguration", s3.get_bucket_lifecycle_configuration, Bucket=other)
refused("MalformedXML", s3.put_bucket_lifecycle_configuration, Bucket=other, LifecycleConfiguration={"Rules": []})
refused("NoSuchCORSConfiguration", s3.get_bucket_cors, Bucket=other)
rules = [{"ID": "pages", "AllowedOrigins": ["https://*.example", "null"], "AllowedMethods": ["GET", "PUT"],
          "AllowedHeaders": ["*"], "ExposeHeaders": ["ETag"], "MaxAgeSeconds": 60},
         {"AllowedOrigins": ["*"], "AllowedMethods": ["HEAD"]}]
s3.put_bucket_cors(Bucket=other, CORSConfiguration={"CORSRules": rules})
expect(rules, s3.get_bucket_cors(Bucket=other)["CORSRules"], "the CORS rules of the bucket")
refused("MalformedXML", s3.put_bucket_cors, Bucket=other, CORSConfiguration={"CORSRules": []})
refused("InvalidRequest", s3.put_bucket_cors, Bucket=other,
        CORSConfiguration={"CORSRules": [{"AllowedOrigins": ["*"], "AllowedMethods": ["PATCH"]}]})
s3.delete_bucket_cors(Bucket=other)
refused("NoSuchCORSConfiguration", s3.get_bucket_cors, Bucket=other)
refused("InvalidArgument", s3.list_objects_v2, Bucket=other, ContinuationToken="garbage")
refused("NoSuchBucket", s3.list_objects_v2, Bucket="no-such-bucket")
s3.delete_bucket(Bucket=other)
refused("404", s3.head_bucket, Bucket=other)
print("boto3 %s, %s: %d keys" % (boto3.__version__, how, len(want)))
