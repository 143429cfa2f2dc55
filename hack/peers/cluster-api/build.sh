#!/usr/bin/env bash
# Builds what `make test-peers PEER=cluster-api` needs from a checkout of Cluster API, into a folder:
#
#   hack/peers/cluster-api/build.sh CHECKOUT FOLDER
#
# It does not vendor its modules: the go command takes them from its cache, or from your
# module proxy.
name='Cluster API' mark=core/reconcilers/machine
source "$(dirname "$0")/../begin.sh"

# Its webhooks default and check what people write, and convert old versions. They would listen to the
# whole network, and need certificates.
alter core/main.go 's/^\tsetupWebhooks\(ctx, mgr, clusterCache\)$/\t_ = clusterCache/; s/^\tsetupChecks\(mgr\)$//'
GOFLAGS=-mod=readonly GOWORK=off go -C "$checkout" build -trimpath -buildvcs=false -overlay="$overlay" -o "$folder/manager" ./core

kubectl kustomize "$checkout/core/config/default" >"$folder/objects.yaml"
