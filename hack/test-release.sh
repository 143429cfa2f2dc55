#!/usr/bin/env bash
# Makes a release twice, from two clones in two folders whose names differ in length, and
# fails if a file differs. What is in no commit is not in it.
set -euo pipefail
cd "$(dirname "$0")/.."

version=${VERSION:-v0.0.0-test.1}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/other-place"
for clone in "$scratch/one" "$scratch/other-place/two"; do
	git clone --quiet . "$clone"
	make --silent -C "$clone" release VERSION="$version"
done
diff --recursive "$scratch/one/dist" "$scratch/other-place/two/dist"
(cd "$scratch/one/dist" && sha256sum --check --quiet checksums.txt && cat checksums.txt)
echo "two releases $version of two clones are the same"
