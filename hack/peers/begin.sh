# What the build scripts of the peers have in common; each sources it after it has set `name`, and `mark`,
# a path that only a checkout of the peer has. It sets:
#
#   checkout, folder   the two arguments
#   repository         this one
#   scratch            a folder that goes with the script
#
# No script fetches source, or changes what is in the checkout. `version` in the folder says what was
# built; it is written last, so a folder that has one is whole.
set -euo pipefail
unset CGO_ENABLED GOFLAGS # make sets them for our own programs; theirs are built as they are by default.

if [[ $# -ne 2 || ! -e $1/$mark ]]; then
	echo "usage: $0 CHECKOUT FOLDER, where CHECKOUT is a checkout of $name (it has $mark)" >&2
	exit 2
fi
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
checkout=$(cd "$1" && pwd)
mkdir -p "$2"
folder=$(cd "$2" && pwd)
rm -f "$folder/version"
scratch=$(mktemp -d)

# finish STATUS: what is done at the end of a script.
finish() {
	rm -rf "$scratch"
	if [[ $1 -eq 0 ]]; then
		# A checkout without git has no version.
		git -C "$checkout" log -1 --format='%h of %cs' >"$folder/version" 2>/dev/null || echo 'an unknown version' >"$folder/version"
		ls -l "$folder"
	fi
}
trap 'finish $?' EXIT

# alter FILE EXPRESSION: from now on, $overlay has go build compile the file as sed changes it.
replace=()
overlay=$scratch/overlay.json
alter() {
	local copy=$scratch/${#replace[@]}.go
	sed -E "$2" "$checkout/$1" >"$copy"
	if cmp -s "$checkout/$1" "$copy"; then
		echo "$0: $checkout/$1 does not have what this script knows to change: $2" >&2
		exit 1
	fi
	replace+=("\"$checkout/$1\": \"$copy\"")
	(
		IFS=,
		echo "{\"Replace\": {${replace[*]}}}"
	) >"$overlay"
}

# helm ARGUMENTS: the version that this project uses, built as `make` builds it.
helm() { CGO_ENABLED=0 GOFLAGS=-trimpath go -C "$repository" tool -modfile=go.tools.helm.mod helm "$@"; }

# kubectl ARGUMENTS: that of the embedded control plane.
kubectl() { "$(CGO_ENABLED=0 GOFLAGS=-trimpath go -C "$repository" run ./test/framework/cluster/cmd/cluster-up --build-only)" kubectl "$@"; }
