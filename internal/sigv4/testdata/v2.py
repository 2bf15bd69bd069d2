"""Writes v2.json: requests that botocore signs by version 2, as it sends them, at a fixed time.

python3 v2.py > v2.json
"""
import json
import boto3
import botocore.auth
from botocore.config import Config

NOW = 1767225600  # 2026-01-01T00:00:00Z
botocore.auth.time.time = lambda: NOW
botocore.auth.formatdate = lambda usegmt: "Thu, 01 Jan 2026 00:00:00 GMT"
KEYS = ["plain", "a b", "a+b", "a%2Fb", "ü/世", "a//b", "/a", "../a", "a/./b", "~-_.!*'()", "a&b=c?d#e",
        "$@:;,[]{}|\\^`\"<>", "x?acl", "x=y&versionId=z"]
out = []


class Sent(Exception):
    pass


def client(style, version):
    return boto3.client(
        "s3", endpoint_url="http://s3.example.com", region_name="us-east-1", aws_access_key_id="AKIAIOSFODNN7EXAMPLE",
        aws_secret_access_key="wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        config=Config(retries={"max_attempts": 0}, signature_version=version, s3={"addressing_style": style}))


def note(method, url, headers):
    _, _, rest = url.partition("://")
    host, _, target = rest.partition("/")
    kept = {}
    for k, v in headers.items():
        if k.lower() not in ("user-agent", "amz-sdk-invocation-id", "amz-sdk-request", "content-length", "expect"):
            kept[k.lower()] = v.decode() if isinstance(v, bytes) else v
    out.append({"method": method, "host": host, "target": "/" + target, "headers": kept})


def send(request, **_):
    note(request.method, request.url, request.headers)
    raise Sent


for style in ("path", "virtual"):
    c = client(style, "s3")
    c.meta.events.register("before-send.s3", send)
    calls = [("list_buckets", {}), ("list_objects", {"Bucket": "abc", "Prefix": "a/", "Delimiter": "/"}),
             ("list_objects_v2", {"Bucket": "abc", "StartAfter": "x"}), ("head_bucket", {"Bucket": "abc"}),
             ("get_bucket_acl", {"Bucket": "abc"}), ("get_bucket_location", {"Bucket": "abc"}),
             ("list_object_versions", {"Bucket": "abc"}), ("list_multipart_uploads", {"Bucket": "abc"}),
             ("put_bucket_versioning", {"Bucket": "abc", "VersioningConfiguration": {"Status": "Enabled"}}),
             ("delete_objects", {"Bucket": "abc", "Delete": {"Objects": [{"Key": "k"}]}})]
    for key in KEYS:
        at = {"Bucket": "abc", "Key": key}
        calls += [("get_object", at), ("get_object", {**at, "VersionId": "Ab-_9", "ResponseContentType": "text/plain; a=b"}),
                  ("put_object", {**at, "Body": b"hello", "ContentType": "text/plain", "Metadata": {"b": "2  3", "a": "x"}}),
                  ("head_object", at), ("delete_object", at),
                  ("copy_object", {**at, "CopySource": {"Bucket": "abc", "Key": key}}),
                  ("create_multipart_upload", at), ("get_object_tagging", at),
                  ("upload_part", {**at, "UploadId": "Ab-_9", "PartNumber": 7, "Body": b"x"}),
                  ("complete_multipart_upload", {**at, "UploadId": "Ab-_9"})]
    for name, params in calls:
        try:
            getattr(c, name)(**params)
        except Sent:
            pass
    c = client(style, None)
    for key in KEYS:
        at = {"Bucket": "abc", "Key": key}
        for name, params, headers in (
                ("get_object", at, {}), ("head_object", at, {}), ("delete_object", at, {}),
                ("get_object", {**at, "VersionId": "Ab-_9", "ResponseContentDisposition": 'attachment; filename="ü b+.txt"'}, {}),
                ("put_object", at, {}), ("put_object", {**at, "ACL": "private", "Metadata": {"a": "b c"}}, {}),
                ("put_object", {**at, "ContentType": "text/plain"}, {"content-type": "text/plain"}),
                ("upload_part", {**at, "UploadId": "Ab-_9", "PartNumber": 7}, {}),
                ("list_objects_v2", {"Bucket": "abc", "Prefix": key}, {})):
            url = c.generate_presigned_url(name, Params=params, ExpiresIn=600)
            assert "AWSAccessKeyId=" in url
            method = {"get": "GET", "hea": "HEAD", "del": "DELETE", "lis": "GET"}.get(name[:3], "PUT")
            note(method, url, headers)
print("[" + ",\n".join(json.dumps(one, ensure_ascii=False) for one in out) + "]")
