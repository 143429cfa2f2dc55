// Package kubevirt runs the preset for KubeVirt against KubeVirt's real programs:
// virt-api and virt-controller on the embedded control plane, with their own
// CustomResourceDefinitions, roles and webhook configurations. Only virt-handler, the
// launchers and the guests are played.
//
// The programs are not part of this repository. DRAWBRIDGE_KUBEVIRT names a folder
// with them; without it every test is skipped. hack/kubevirt/README.md says how to get
// one, and `make test-kubevirt KUBEVIRT=CHECKOUT` runs the tests.
package kubevirt
