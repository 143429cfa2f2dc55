#!/usr/bin/env bash
# Makes the release on GitHub, with all files of the folder, by gh, which must be in the PATH
# and finds its token in GH_TOKEN.
#
# usage: publish.sh VERSION FOLDER
set -euo pipefail
version=$1 folder=$2
if [[ -z $version || ! -s $folder/checksums.txt || ! -s $folder/release-notes.md ]]; then
	echo "publish: $folder has no release $version; run first: make release VERSION=vX.Y.Z" >&2
	exit 2
fi
files=()
for file in "$folder"/*; do # Folders are pushed, or for krew.
	if [[ -f $file && $file != */release-notes.md ]]; then files+=("$file"); fi
done
kind=()
if [[ $version == *-* ]]; then kind=(--prerelease); fi
gh release create "$version" --verify-tag --title="$version" --notes-file="$folder/release-notes.md" "${kind[@]}" "${files[@]}"
