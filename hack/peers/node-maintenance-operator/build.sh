#!/usr/bin/env bash
# Builds what `make test-peers PEER=node-maintenance-operator` needs from a checkout of medik8s'
# node-maintenance-operator, into a folder:
#
#   hack/peers/node-maintenance-operator/build.sh CHECKOUT FOLDER
#
# It downloads nothing: the checkout has its modules.
name='medik8s node-maintenance-operator' mark=api/v1beta1/nodemaintenance_types.go
source "$(dirname "$0")/../begin.sh"

# Its webhook refuses NodeMaintenances of nodes that are not there, which no test makes. It would
# listen to the whole network, and needs a certificate in a folder of the machine.
alter cmd/main.go 's/webhookv1beta1\.SetupNodeMaintenanceWebhookWithManager\(isOpenShift, mgr\)/error(nil)/; s/^\twebhookv1beta1 "/\t_ "/'
GOFLAGS=-mod=vendor GOPROXY=off GOWORK=off go -C "$checkout" build -trimpath -buildvcs=false -overlay="$overlay" -o "$folder/manager" ./cmd

kubectl kustomize "$checkout/config/default" >"$folder/objects.yaml"
