#!/bin/sh
# install-cassandra-tools.sh: Java 17 and Maven, which the tests against a real Cassandra need, from Debian's packages.
set -eu
packages=
ls /usr/lib/jvm/*17*/bin/java >/dev/null 2>&1 || packages="$packages openjdk-17-jre-headless"
command -v mvn >/dev/null 2>&1 || packages="$packages maven"
[ -n "$packages" ] || exit 0
if ! command -v apt-get >/dev/null 2>&1; then
	printf 'the tests against Cassandra need%s: install them, there is no apt-get here\n' "$packages" >&2
	exit 1
fi
sudo=
[ "$(id -u)" -eq 0 ] || sudo=sudo
printf 'installing%s (for the tests against Cassandra)\n' "$packages"
$sudo apt-get update -qq
# shellcheck disable=SC2086 # a list of words
DEBIAN_FRONTEND=noninteractive $sudo apt-get install -qq -y --no-install-recommends $packages >/dev/null
