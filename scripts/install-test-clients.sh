#!/bin/sh
# Installs the S3 clients that the tests use against listd: Debian's awscli and
# python3-boto3, and curl. Does nothing where they are there already.
set -eu

missing=
command -v aws >/dev/null 2>&1 || missing="$missing awscli"
/usr/bin/python3 -c 'import boto3' 2>/dev/null || python3 -c 'import boto3' 2>/dev/null || missing="$missing python3-boto3"
command -v curl >/dev/null 2>&1 || missing="$missing curl"
[ -z "$missing" ] && exit 0

echo "installing$missing"
if ! command -v apt-get >/dev/null 2>&1; then
	echo "there is no apt-get here: please install$missing in another way" >&2
	exit 1
fi
as_root=
if [ "$(id -u)" -ne 0 ]; then
	if ! command -v sudo >/dev/null 2>&1; then
		echo "neither root nor sudo: please have$missing installed" >&2
		exit 1
	fi
	as_root=sudo
fi
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get update -q
# The names are package names of this script's own.
# shellcheck disable=SC2086
$as_root apt-get install -q -y --no-install-recommends $missing
