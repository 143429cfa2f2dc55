#!/usr/bin/env bash
# Builds what `make test-peers PEER=argo-rollouts` needs from a checkout of Argo Rollouts, into a
# folder:
#
#   hack/peers/argo-rollouts/build.sh CHECKOUT FOLDER
#
# It does not vendor its modules: the go command takes them from its cache, or from your
# module proxy.
name=argo-rollouts mark=manifests/crds/rollout-crd.yaml
source "$(dirname "$0")/../begin.sh"

# Its servers listen to the whole network.
alter controller/controller.go 's/"0\.0\.0\.0:%d"/"127.0.0.1:%d"/'

GOFLAGS=-mod=readonly GOWORK=off CGO_ENABLED=0 go -C "$checkout" build -trimpath -buildvcs=false -overlay="$overlay" -o "$folder/rollouts-controller" ./cmd/rollouts-controller
cp "$checkout/manifests/install.yaml" "$folder/objects.yaml"
