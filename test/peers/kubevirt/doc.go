// Package kubevirt runs the preset for KubeVirt against KubeVirt's real programs:
// virt-api and virt-controller on the embedded control plane, with their own
// CustomResourceDefinitions, roles and webhook configurations. Only virt-handler, the
// launchers and the guests are played.
//
// The programs are not part of this repository; without them every test is skipped.
// `make test-peers PEER=kubevirt CHECKOUT=FOLDER` builds them and runs the tests.
package kubevirt
