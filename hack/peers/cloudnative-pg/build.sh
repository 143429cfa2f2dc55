#!/usr/bin/env bash
# Builds what `make test-peers PEER=cloudnative-pg` needs from a checkout of CloudNativePG, into a
# folder:
#
#   hack/peers/cloudnative-pg/build.sh CHECKOUT FOLDER
#
# It does not vendor its modules: the go command takes them from its cache, or from your
# module proxy.
name=CloudNativePG mark=api/v1/cluster_types.go
source "$(dirname "$0")/../begin.sh"

# Its webhooks listen to the whole network.
alter internal/cmd/manager/controller/controller.go 's/webhook\.NewServer\(webhook\.Options\{/&Host: "127.0.0.1",/'

# As in its image: it looks in its working directory for its programs, by architecture.
program=operator/manager_$(go env GOARCH)
GOFLAGS=-mod=readonly GOWORK=off CGO_ENABLED=0 go -C "$checkout" build -trimpath -buildvcs=false -overlay="$overlay" -o "$folder/$program" ./cmd/manager
printf '#!/bin/sh\ncd "$(dirname "$0")" && exec ./%s "$@"\n' "$program" >"$folder/manager"
chmod +x "$folder/manager"
kubectl kustomize "$checkout/config/default" >"$folder/objects.yaml"
