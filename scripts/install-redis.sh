#!/bin/sh
# install-redis.sh: Redis, which the tests of counters start for themselves, from Debian's package. Its service is not started.
set -eu
command -v redis-server >/dev/null 2>&1 && exit 0
if ! command -v apt-get >/dev/null 2>&1; then
	printf 'the tests of counters need redis-server: install it, there is no apt-get here\n' >&2
	exit 1
fi
sudo=
[ "$(id -u)" -eq 0 ] || sudo=sudo
printf 'installing redis-server (for the tests of counters)\n'
$sudo apt-get update -qq
# The package would start a server of its own; the tests start theirs on free ports.
[ -e /usr/sbin/policy-rc.d ] || {
	printf '#!/bin/sh\nexit 101\n' | $sudo tee /usr/sbin/policy-rc.d >/dev/null
	$sudo chmod 755 /usr/sbin/policy-rc.d
	trap '$sudo rm -f /usr/sbin/policy-rc.d' EXIT
}
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends redis-server >/dev/null
