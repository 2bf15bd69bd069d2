# What a boto3 program does with a directory tree: boto.py URL PAGE COMMAND BUCKET
# [PREFIX [DIR]]. Credentials and attempts are in the environment.
import os
import pathlib
import sys

import boto3
from botocore.config import Config

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


if command == "create":
    s3.create_bucket(Bucket=bucket)
elif command == "up":
    root = pathlib.Path(sys.argv[6])
    here = {prefix + f.relative_to(root).as_posix(): f for f in root.rglob("*") if f.is_file()}
    for key, f in here.items():
        s3.put_object(Bucket=bucket, Key=key, Body=f.read_bytes())
    drop([k for k in keys(prefix) if k not in here])
elif command == "keys":
    print("\n".join(keys(prefix)))
elif command == "folders":
    print("\n".join(p["Prefix"] for _, prefixes in listed(Prefix=prefix, Delimiter="/") for p in prefixes))
elif command == "down":
    for key in keys(prefix):
        to = pathlib.Path(sys.argv[6], key[len(prefix):])
        os.makedirs(to.parent, exist_ok=True)
        to.write_bytes(s3.get_object(Bucket=bucket, Key=key)["Body"].read())
elif command == "empty":
    drop(keys(""))
elif command == "remove":
    s3.delete_bucket(Bucket=bucket)
else:
    sys.exit("what is " + command)
