"""Prints the operations of S3, as botocore's model has them, for s3operations.txt:

    python3 -m venv v && v/bin/pip install botocore && v/bin/python s3operations.py > s3operations.txt

A line is an operation's method, what it is for, the parameter that names its sub-resource (or -), its name, and its
other query parameters. With the argument headers it prints the headers, for s3headers.txt: a line is a header, and the
operations that have it.
"""
import sys

import botocore
import botocore.session

model = botocore.session.get_session().get_service_model("s3")
print("# by s3operations.py, of botocore", botocore.__version__)
lines, headers = [], {}
for name in model.operation_names:
    operation = model.operation_model(name)
    path, _, query = operation.http["requestUri"].partition("?")
    resource = {"/": "service", "/{Bucket}": "bucket", "/{Bucket}/{Key+}": "object"}.get(path)
    if resource is None:
        continue  # of Object Lambda, which has hosts of its own
    members = operation.input_shape.members.values() if operation.input_shape else []
    takes = sorted(m.serialization["name"] for m in members if m.serialization.get("location") == "querystring")
    sub = query.partition("&")[0] or "-"
    for m in members:
        if m.serialization.get("location") in ("header", "headers"):
            headers.setdefault(m.serialization["name"], []).append(name)
    lines.append(" ".join([operation.http["method"], resource, sub, name, *takes]))
if sys.argv[1:] == ["headers"]:
    lines = [" ".join([header, *names]) for header, names in headers.items()]
print("\n".join(sorted(lines)))
