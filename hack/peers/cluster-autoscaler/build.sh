#!/usr/bin/env bash
# Builds what `make test-peers PEER=cluster-autoscaler` needs from a checkout of the Cluster Autoscaler's
# core (kubernetes-sigs/cluster-autoscaler), into a folder:
#
#   hack/peers/cluster-autoscaler/build.sh CHECKOUT FOLDER
#
# It does not vendor its modules: the go command takes them from its cache, or from your
# module proxy. If that does not have its API, AUTOSCALER_APIS may name the folder of it,
# which is cluster-autoscaler/apis in a checkout of kubernetes/autoscaler, and KUBERNETES
# another version of Kubernetes' modules than its release candidate, such as 37.2.
name='Cluster Autoscaler' mark=kwok/main.go
source "$(dirname "$0")/../begin.sh"

modfile=$scratch/go.mod
cp "$checkout/go.mod" "$modfile"
cp "$checkout/go.sum" "$scratch/go.sum"
if [[ -n ${AUTOSCALER_APIS-} ]]; then
	go mod edit -replace="k8s.io/autoscaler/cluster-autoscaler/apis=$(cd "$AUTOSCALER_APIS" && pwd)" "$modfile"
fi
if [[ -n ${KUBERNETES-} ]]; then
	sed -i -E "s/ v([01])\.[0-9]+\.[0-9]+-rc\.[0-9]+$/ v\1.$KUBERNETES/" "$modfile"
fi
GOFLAGS=-mod=mod GOWORK=off go -C "$checkout" build -modfile="$modfile" -trimpath -buildvcs=false -o "$folder/cluster-autoscaler" ./kwok
helm template cluster-autoscaler "$checkout/kwok/charts" --namespace kube-system >"$folder/objects.yaml"
