#!/usr/bin/env bash
# Builds what `make test-peers PEER=karpenter` needs from a checkout of Karpenter, into a folder:
#
#   hack/peers/karpenter/build.sh CHECKOUT FOLDER
#
# Karpenter does not vendor its modules: the go command takes them from its cache, or from
# your module proxy.
name=Karpenter mark=kwok/main.go
source "$(dirname "$0")/../begin.sh"

# Karpenter takes ports and no addresses, and would listen to the whole network.
alter pkg/operator/operator.go 's/(BindAddress: +fmt\.Sprintf\(")(:%d")/\1127.0.0.1\2/'
if [[ $(grep -c '"127\.0\.0\.1:%d"' "$scratch/0.go") -ne 2 ]]; then
	echo "$0: pkg/operator/operator.go does not have the two addresses that this script knows to change" >&2
	exit 1
fi
GOFLAGS=-mod=readonly GOWORK=off go -C "$checkout" build -trimpath -buildvcs=false -overlay="$overlay" -o "$folder/karpenter" ./kwok

# The account, the roles and the definitions. Its chart has the latter as links.
cp -RL "$checkout/kwok/charts" "$scratch/chart"
helm template karpenter "$scratch/chart" --namespace karpenter --include-crds >"$folder/objects.yaml"
