#!/usr/bin/env bash
# Signs what push.sh has pushed, by cosign without a key: the workflow's identity is in the
# certificate. cosign must be in the PATH.
#
# usage: sign.sh FOLDER
set -euo pipefail
references=$1/pushed/references
if [[ ! -s $references ]]; then
	echo "sign: there is no $references; run first: make push" >&2
	exit 2
fi
while read -r reference; do
	# A digest: a tag may be another image by the time it is signed.
	cosign sign --yes "$reference"
done <"$references"
