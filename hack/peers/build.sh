#!/usr/bin/env bash
# Builds a peer from a checkout, into a folder:
#
#   hack/peers/build.sh [--check] PEER CHECKOUT FOLDER
#
# --check only says whether there is such a peer and such a checkout.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
check=
if [[ ${1-} == --check ]]; then
	check=yes
	shift
fi
if [[ ${1-} == kubectl ]]; then
	exit # It comes with the control plane.
fi
peers=$(cd "$here" && printf '%s ' */build.sh | sed 's#/build\.sh##g')
if [[ -z ${1-} || ! -f $here/$1/build.sh ]]; then
	echo "PEER is ${1:-empty}; it is to be one of: kubectl $peers(hack/peers/README.md)" >&2
	exit 2
fi
if [[ ! -d ${2-} ]]; then
	echo "CHECKOUT is ${2:-empty}; it is to be a folder with a checkout of $1 (hack/peers/$1/README.md)" >&2
	exit 2
fi
if [[ -n $check ]]; then
	exit
fi
exec "$here/$1/build.sh" "$2" "$3"
