#!/usr/bin/env bash
# Builds what `make test-kubevirt` needs from a checkout of KubeVirt, into a folder:
#
#   hack/kubevirt/build.sh CHECKOUT FOLDER
#
# It downloads nothing: KubeVirt vendors its modules. In the checkout it makes one folder
# for a program that prints what KubeVirt's operator would install, and removes it.
set -euo pipefail
unset CGO_ENABLED # make sets it for our own programs; theirs are built as they are by default.

if [[ $# -ne 2 || ! -d $1/cmd/virt-api ]]; then
	echo "usage: $0 CHECKOUT FOLDER, where CHECKOUT is a checkout of KubeVirt" >&2
	exit 2
fi
checkout=$(cd "$1" && pwd)
mkdir -p "$2"
folder=$(cd "$2" && pwd)
cd "$checkout"
export GOFLAGS=-mod=vendor GOPROXY=off

for program in virt-api virt-controller; do
	go build -o "$folder/$program" "./cmd/$program"
done

generate=pkg/virt-operator/resource/generate
printer=$(mktemp -d cmd/print-objects-XXXXXX)
trap 'rm -rf "$checkout/$printer"' EXIT

# What the versions differ in: their definitions, a parameter, a webhook.
definitions=$(sed -n 's/^func \(New[A-Za-z]*Crd\)().*/components.\1,/p' $generate/components/crds.go)
controller='rbac.GetAllController(namespace)'
if grep -q '^func GetAllController(namespace string, ' $generate/rbac/controller.go; then
	controller='rbac.GetAllController(namespace, false)'
fi
launchers=''
if grep -rq '^func NewVirtLauncherPodMutatingWebhookConfiguration(' $generate/components; then
	launchers='show(components.NewVirtLauncherPodMutatingWebhookConfiguration(namespace))'
fi

cat >"$printer/main.go" <<EOF
package main

import (
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"kubevirt.io/kubevirt/$generate/components"
	"kubevirt.io/kubevirt/$generate/rbac"
)

const namespace = "kubevirt"

func show(object any) {
	out, err := yaml.Marshal(object)
	if err != nil {
		panic(err)
	}
	fmt.Printf("---\n%s", out)
}

func main() {
	show(map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace}})
	for _, definition := range []func() (*apiextensionsv1.CustomResourceDefinition, error){
		$definitions
	} {
		crd, err := definition()
		if err != nil {
			panic(err)
		}
		show(crd)
	}
	for _, group := range [][]runtime.Object{
		rbac.GetAllCluster(), rbac.GetAllApiServer(namespace), $controller, rbac.GetAllHandler(namespace),
	} {
		for _, object := range group {
			show(object)
		}
	}
	show(components.NewKubeVirtPriorityClassCR())
	show(components.NewApiServerService(namespace))
	for _, service := range components.NewVirtAPIAPIServices(namespace) {
		show(service)
	}
	show(components.NewVirtAPIMutatingWebhookConfiguration(namespace))
	show(components.NewVirtAPIValidatingWebhookConfiguration(namespace))
	$launchers
}
EOF
go run "./$printer" >"$folder/objects.yaml"
ls -l "$folder"
