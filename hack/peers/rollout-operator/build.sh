#!/usr/bin/env bash
# Builds what `make test-peers PEER=rollout-operator` needs from a checkout of Grafana's rollout-operator,
# into a folder:
#
#   hack/peers/rollout-operator/build.sh CHECKOUT FOLDER
#
# It downloads nothing: the checkout has its modules.
name="Grafana's rollout-operator" mark=pkg/zpdb
source "$(dirname "$0")/../begin.sh"

# Its servers listen to the whole network.
for file in tls_server server; do
	alter cmd/rollout-operator/$file.go 's/net\.Listen\("tcp", fmt\.Sprintf\(":%d"/net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d"/'
done
GOFLAGS=-mod=vendor GOPROXY=off GOWORK=off go -C "$checkout" build -trimpath -buildvcs=false -overlay="$overlay" \
	-o "$folder/rollout-operator" ./cmd/rollout-operator
cp "$checkout/operations/rollout-operator-tests/test-rollout-operator-enabled-default-generated.yaml" "$folder/objects.yaml"
