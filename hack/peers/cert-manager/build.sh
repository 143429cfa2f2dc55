#!/usr/bin/env bash
# Builds what `make test-peers PEER=cert-manager` needs from a checkout of cert-manager, into a folder:
#
#   hack/peers/cert-manager/build.sh CHECKOUT FOLDER
#
# cert-manager does not vendor its modules: the go command takes them from its cache, or from
# your module proxy.
name=cert-manager mark=cmd/cainjector/go.mod
source "$(dirname "$0")/../begin.sh"

# The webhook takes ports and no addresses, and would listen to the whole network. Nobody
# but the API server on this machine is to reach it.
alter pkg/webhook/server/server.go 's/^\t\tPort: s\.ListenAddr,$/\t\tHost: "127.0.0.1",\n&/; s/":%d", \*s\.HealthzAddr/"127.0.0.1:%d", *s.HealthzAddr/'
# No test needs the issuer for Venafi, and not every module proxy has its SDK.
alter cmd/controller/app/start.go '/issuer\/venafi"$/d'
alter internal/apis/config/controller/v1alpha1/defaults.go '/venafi/d'

# Each program is a module of its own, which replaces cert-manager's by the checkout.
for program in controller webhook cainjector; do
	GOFLAGS=-mod=readonly GOWORK=off go -C "$checkout/cmd/$program" build -trimpath -overlay="$overlay" -o "$folder/$program" .
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
	helm template cert-manager "$scratch/chart" --namespace cert-manager \
		--set global.leaderElection.namespace=cert-manager --set webhook.url.host=localhost \
		--set prometheus.enabled=false --set startupapicheck.enabled=false
} >"$folder/objects.yaml"
