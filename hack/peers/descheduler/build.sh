#!/usr/bin/env bash
# Builds what `make test-peers PEER=descheduler` needs from a checkout of the descheduler, into a folder:
#
#   hack/peers/descheduler/build.sh CHECKOUT FOLDER
#
# It downloads nothing: the checkout has its modules.
name=descheduler mark=cmd/descheduler
source "$(dirname "$0")/../begin.sh"

GOFLAGS=-mod=vendor GOPROXY=off GOWORK=off go -C "$checkout" build -trimpath -buildvcs=false -o "$folder/descheduler" ./cmd/descheduler
cp "$checkout/kubernetes/base/rbac.yaml" "$folder/objects.yaml"
