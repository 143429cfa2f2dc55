#!/usr/bin/env bash
# Builds what `make test-karpenter` needs from a checkout of Karpenter, into a folder:
#
#   hack/karpenter/build.sh CHECKOUT FOLDER
#
# It fetches no source, and changes nothing in the checkout. Karpenter does not vendor its
# modules: the go command takes them from its cache, or from your module proxy.
set -euo pipefail
unset CGO_ENABLED # make sets it for our own programs; theirs are built as they are by default.

if [[ $# -ne 2 || ! -f $1/kwok/main.go ]]; then
	echo "usage: $0 CHECKOUT FOLDER, where CHECKOUT is a checkout of Karpenter" >&2
	exit 2
fi
repository=$(cd "$(dirname "$0")/../.." && pwd)
checkout=$(cd "$1" && pwd)
mkdir -p "$2"
folder=$(cd "$2" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Karpenter takes ports and no addresses, and would listen to the whole network.
operator=$checkout/pkg/operator/operator.go
sed -E 's/(BindAddress: +fmt\.Sprintf\(")(:%d")/\1127.0.0.1\2/' "$operator" >"$scratch/operator.go"
if [[ $(grep -c '"127\.0\.0\.1:%d"' "$scratch/operator.go") -ne 2 ]]; then
	echo "$0: $operator does not have the two addresses that this script knows to change" >&2
	exit 1
fi
echo "{\"Replace\": {\"$operator\": \"$scratch/operator.go\"}}" >"$scratch/overlay.json"
GOFLAGS=-mod=readonly GOWORK=off go -C "$checkout" build -trimpath -buildvcs=false -overlay="$scratch/overlay.json" -o "$folder/karpenter" ./kwok

# The account, the roles and the definitions. Its chart has the latter as links.
cp -RL "$checkout/kwok/charts" "$scratch/chart"
go -C "$repository" tool -modfile=go.tools.helm.mod helm template karpenter "$scratch/chart" \
	--namespace karpenter --include-crds >"$folder/objects.yaml"

# What was built, for the log of a test: a checkout without git has no version.
git -C "$checkout" log -1 --format='%H of %cs' >"$folder/version" 2>/dev/null || echo 'an unknown version' >"$folder/version"
ls -l "$folder"
