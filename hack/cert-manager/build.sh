#!/usr/bin/env bash
# Builds what `make test-cert-manager` needs from a checkout of cert-manager, into a folder:
#
#   hack/cert-manager/build.sh CHECKOUT FOLDER
#
# It fetches no source, and changes nothing in the checkout. cert-manager does not vendor
# its modules: the go command takes them from its cache, or from your module proxy.
set -euo pipefail
unset CGO_ENABLED # make sets it for our own programs; theirs are built as they are by default.

if [[ $# -ne 2 || ! -f $1/cmd/cainjector/go.mod ]]; then
	echo "usage: $0 CHECKOUT FOLDER, where CHECKOUT is a checkout of cert-manager" >&2
	exit 2
fi
repository=$(cd "$(dirname "$0")/../.." && pwd)
checkout=$(cd "$1" && pwd)
mkdir -p "$2"
folder=$(cd "$2" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# alter FILE EXPRESSION: the programs are built with the file as sed changes it.
replace=()
alter() {
	local copy=$scratch/${#replace[@]}.go
	sed -E "$2" "$checkout/$1" >"$copy"
	if cmp -s "$checkout/$1" "$copy"; then
		echo "$0: $checkout/$1 does not have what this script knows to change: $2" >&2
		exit 1
	fi
	replace+=("\"$checkout/$1\": \"$copy\"")
}
# The webhook takes ports and no addresses, and would listen to the whole network. Nobody
# but the API server on this machine is to reach it.
alter pkg/webhook/server/server.go 's/^\t\tPort: s\.ListenAddr,$/\t\tHost: "127.0.0.1",\n&/; s/":%d", \*s\.HealthzAddr/"127.0.0.1:%d", *s.HealthzAddr/'
# No test needs the issuer for Venafi, and not every module proxy has its SDK.
alter cmd/controller/app/start.go '/issuer\/venafi"$/d'
alter internal/apis/config/controller/v1alpha1/defaults.go '/venafi/d'
(IFS=,; echo "{\"Replace\": {${replace[*]}}}") >"$scratch/overlay.json"

# Each program is a module of its own, which replaces cert-manager's by the checkout.
for program in controller webhook cainjector; do
	GOFLAGS=-mod=readonly GOWORK=off go -C "$checkout/cmd/$program" build -trimpath -overlay="$scratch/overlay.json" -o "$folder/$program" .
done

# Older checkouts have the chart's description as a template.
cp -R "$checkout/deploy/charts/cert-manager" "$scratch/chart"
if [[ ! -f $scratch/chart/Chart.yaml ]]; then
	cp "$scratch/chart/Chart.template.yaml" "$scratch/chart/Chart.yaml"
fi
{
	for definition in "$checkout"/deploy/crds/*.yaml; do
		echo ---
		cat "$definition"
	done
	go -C "$repository" tool -modfile=go.tools.helm.mod helm template cert-manager "$scratch/chart" --namespace cert-manager \
		--set global.leaderElection.namespace=cert-manager --set webhook.url.host=localhost \
		--set prometheus.enabled=false --set startupapicheck.enabled=false
} >"$folder/objects.yaml"
ls -l "$folder"
