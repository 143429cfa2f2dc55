#!/usr/bin/env bash
# Builds what `make test-peers PEER=kured` needs from a checkout of kured, into a folder:
#
#   hack/peers/kured/build.sh CHECKOUT FOLDER
#
# kured does not vendor its modules: the go command takes them from its cache, or from your
# module proxy.
name=kured mark=kured-rbac.yaml
source "$(dirname "$0")/../begin.sh"

# It runs beside the cluster, so it reads a kubeconfig instead of the account of a pod.
alter cmd/kured/main.go 's/rest\.InClusterConfig\(\)/clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))/; s#"k8s.io/client-go/rest"#"k8s.io/client-go/tools/clientcmd"#'
# Its command to reboot is run as it is, and not in the namespaces of the machine.
alter pkg/reboot/command.go 's#^\tcmd := \[\]string\{"/usr/bin/nsenter".*#\tvar cmd []string#'
GOFLAGS=-mod=readonly GOWORK=off go -C "$checkout" build -trimpath -buildvcs=false -overlay="$overlay" -o "$folder/kured" ./cmd/kured

cp "$checkout/kured-rbac.yaml" "$folder/objects.yaml"
