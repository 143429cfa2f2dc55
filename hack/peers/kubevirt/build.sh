#!/usr/bin/env bash
# Builds what `make test-peers PEER=kubevirt` needs from a checkout of KubeVirt, into a folder:
#
#   hack/peers/kubevirt/build.sh CHECKOUT FOLDER
#
# It downloads nothing: KubeVirt vendors its modules. In the checkout it makes one folder
# for a program that prints what KubeVirt's operator would install, and removes it.
name=KubeVirt mark=cmd/virt-api
source "$(dirname "$0")/../begin.sh"

cd "$checkout"
export GOFLAGS=-mod=vendor GOPROXY=off

for program in virt-api virt-controller; do
	go build -o "$folder/$program" "./cmd/$program"
done

generate=pkg/virt-operator/resource/generate
printer=$(mktemp -d cmd/print-objects-XXXXXX)
trap 'status=$?; rm -rf "$checkout/$printer"; finish $status' EXIT

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
