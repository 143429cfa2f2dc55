#!/usr/bin/env bash
# Builds what `make test-peers PEER=eviction-autoscaler` needs from a checkout of Azure's
# eviction-autoscaler, into a folder:
#
#   hack/peers/eviction-autoscaler/build.sh CHECKOUT FOLDER
#
# It does not vendor its modules: the go command takes them from its cache, or from your
# module proxy.
name=eviction-autoscaler mark=api/v1/evictionautoscaler_types.go
source "$(dirname "$0")/../begin.sh"

GOFLAGS=-mod=readonly GOWORK=off go -C "$checkout" build -trimpath -buildvcs=false -o "$folder/manager" ./cmd
helm template eviction-autoscaler "$checkout/helm/eviction-autoscaler" --namespace eviction-autoscaler --include-crds \
	--set controllerConfig.namespaces.enabledByDefault=true >"$folder/objects.yaml"
