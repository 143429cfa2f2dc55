#!/usr/bin/env bash
# Fails if `make generate` would change, add or remove a file. It runs in a copy, so
# that the working tree stays as it is, whatever state it is in.
set -euo pipefail
cd "$(dirname "$0")/.."

# Always the same folder for a checkout, or the go command would compile everything anew each time.
copy=${XDG_CACHE_HOME:-$HOME/.cache}/drawbridge/verify-generate/$(tr / - <<<"${PWD#/}")
rm -rf "$copy"
mkdir -p "$copy"
# Tracked and untracked files alike, but no ignored ones; a deleted one is in the
# index still.
git ls-files --cached --others --exclude-standard -z |
	while IFS= read -r -d '' file; do
		if [[ -e $file ]]; then printf '%s\0' "$file"; fi
	done | tar --create --null --files-from=- | tar --extract --directory="$copy"

cd "$copy"
git init --quiet
git add --all
make --silent generate
git add --all --intent-to-add
if ! git diff --exit-code; then
	echo "generated files are not up to date: run 'make generate'" >&2
	exit 1
fi
