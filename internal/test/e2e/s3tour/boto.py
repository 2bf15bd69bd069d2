# What a boto3 program does with a directory tree: boto.py URL PAGE COMMAND BUCKET
# [PREFIX [DIR]]. Credentials and attempts are in the environment.
import hashlib
import os
import pathlib
import sys

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

url, page, command, bucket = sys.argv[1:5]
prefix = sys.argv[5] if len(sys.argv) > 5 else ""
s3 = boto3.client("s3", endpoint_url=url, config=Config(s3={"addressing_style": "path"}))


def listed(**arguments):
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, PaginationConfig={"PageSize": int(page)}, **arguments)
    return [(p.get("Contents", []), p.get("CommonPrefixes", [])) for p in pages]


def keys(prefix):
    return [c["Key"] for contents, _ in listed(Prefix=prefix) for c in contents]


def drop(gone):
    for at in range(0, len(gone), 1000):
        answer = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": k} for k in gone[at:at + 1000]]})
        if answer.get("Errors"):
            sys.exit(repr(answer["Errors"]))


def history():
    """What history.go does, and says."""
    bodies, key = {"null": "null"}, "a dir/k"

    def status(to):
        s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": to})

    def put(name):
        answer = s3.put_object(Bucket=bucket, Key=key, Body=(name + " ") * 5000)
        bodies.setdefault(answer.get("VersionId", "null"), name)

    def of(name):
        return {"VersionId": next(i for i, n in bodies.items() if n == name)} if name else {}

    def show(after):
        answer = s3.list_object_versions(Bucket=bucket, Prefix=key)
        both = answer.get("Versions", []) + answer.get("DeleteMarkers", [])
        print(after + ":", *[bodies[v["VersionId"]] + ("!" if v["IsLatest"] else "") for v in both])

    def get(name=""):
        try:
            got = s3.get_object(Bucket=bucket, Key=key, **of(name))["Body"].read().decode()
        except ClientError as e:
            print(f"get {name}: {e.response['Error']['Code']}")
            return
        word = got.split(" ")[0]
        print(f"get {name}: {word if got == (word + ' ') * 5000 else 'another'}")

    def restore(name):
        answer = s3.copy_object(Bucket=bucket, Key=key, CopySource={"Bucket": bucket, "Key": key, **of(name)})
        bodies[answer["VersionId"]] = "restored"

    def remove(name=""):
        answer = s3.delete_object(Bucket=bucket, Key=key, **of(name))
        if not name:
            bodies[answer["VersionId"]] = "marker"

    s3.create_bucket(Bucket=bucket)
    status("Enabled"), put("one"), put("two")
    show("replaced"), get(), get("one")
    restore("one"), show("restored by a copy"), get()
    remove(), show("deleted"), get(), get("two"), get("marker")
    remove("marker"), show("restored by deleting the marker"), get()
    remove("restored"), show("restored by deleting the newest"), get()
    status("Suspended"), put("null"), show("suspended"), get("null")

    size, key = 5 << 20, "b/parts"
    pieces = [bytes([ord("a") + n]) * size for n in range(3)]

    def part(upload, n):
        s3.upload_part(Bucket=bucket, Key=key, UploadId=upload, PartNumber=n, Body=pieces[n - 1])

    def parts(upload):
        return s3.list_parts(Bucket=bucket, Key=key, UploadId=upload)["Parts"]

    begun = s3.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
    part(begun, 3), part(begun, 1)
    found = s3.list_multipart_uploads(Bucket=bucket)["Uploads"]
    for u in found:
        print("open:", u["Key"])
    upload = found[0]["UploadId"]
    print("parts:", *[p["PartNumber"] for p in parts(upload)])
    part(upload, 2)
    done = [{"PartNumber": p["PartNumber"], "ETag": p["ETag"]} for p in parts(upload)]
    answer = s3.complete_multipart_upload(Bucket=bucket, Key=key, UploadId=upload, MultipartUpload={"Parts": done})
    etag = hashlib.md5(b"".join(hashlib.md5(p).digest() for p in pieces)).hexdigest() + "-3"
    print("completed:", str(answer["ETag"].strip('"') == etag).lower())
    whole = b"".join(pieces)
    for start, end in (0, len(whole)), (size - 2, 2 * size + 2), (2 * size, 2 * size + 1):
        got = s3.get_object(Bucket=bucket, Key=key, Range=f"bytes={start}-{end - 1}")["Body"].read()
        print(f"from {start} to {end}: {str(got == whole[start:end]).lower()}")
    try:
        parts(upload)
    except ClientError as e:
        print("parts:", e.response["Error"]["Code"])


if command == "create":
    s3.create_bucket(Bucket=bucket)
elif command == "up":
    root = pathlib.Path(sys.argv[6])
    here = {prefix + f.relative_to(root).as_posix(): f for f in root.rglob("*") if f.is_file()}
    for key, f in here.items():
        s3.upload_file(str(f), bucket, key)  # in parts, if it is large
    drop([k for k in keys(prefix) if k not in here])
elif command == "keys":
    print("\n".join(keys(prefix)))
elif command == "folders":
    print("\n".join(p["Prefix"] for _, prefixes in listed(Prefix=prefix, Delimiter="/") for p in prefixes))
elif command == "down":
    for key in keys(prefix):
        to = pathlib.Path(sys.argv[6], key[len(prefix):])
        os.makedirs(to.parent, exist_ok=True)
        s3.download_file(bucket, key, str(to))
elif command == "empty":
    drop(keys(""))
elif command == "puts":  # on one connection
    for key, body in ("a/", b""), ("b", b"full"), ("c", b""), ("d", b"full"):
        s3.put_object(Bucket=bucket, Key=key, Body=body)
elif command == "history":
    history()
elif command == "remove":
    s3.delete_bucket(Bucket=bucket)
else:
    sys.exit("what is " + command)
