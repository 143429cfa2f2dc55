#!/usr/bin/env bash
# Builds what `make test-peers PEER=system-upgrade-controller` needs from a checkout of Rancher's
# system-upgrade-controller, into a folder:
#
#   hack/peers/system-upgrade-controller/build.sh CHECKOUT FOLDER
#
# It does not vendor its modules: the go command takes them from its cache, or from your
# module proxy.
name=system-upgrade-controller mark=pkg/upgrade/job/job.go
source "$(dirname "$0")/../begin.sh"

GOFLAGS=-mod=readonly GOWORK=off go -C "$checkout" build -trimpath -buildvcs=false -o "$folder/controller" .
{
	cat "$checkout"/pkg/crds/yaml/generated/*.yaml
	echo ---
	kubectl kustomize "$checkout"
} >"$folder/objects.yaml"
