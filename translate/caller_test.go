package translate_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/drawbridge-dev/drawbridge/translate"
)

func TestRecognize(t *testing.T) {
	inPod := map[string][]string{"authentication.kubernetes.io/pod-name": {"drainer-x7"}}
	cases := map[string]struct {
		in   translate.CallerInput
		want translate.Caller
	}{
		"a person with kubectl": {
			translate.CallerInput{Username: "alice", Manager: "kubectl"},
			translate.Caller{Requester: "alice.users.drawbridge.dev", Display: "kubectl (alice)", Class: translate.ClassKubectl, TTL: 2 * time.Minute, MarkersCancel: true},
		},
		"kubectl in a pod is automation": {
			translate.CallerInput{Username: "system:serviceaccount:ops:drainer", Manager: "kubectl", Extra: inPod},
			translate.Caller{Requester: "drainer.ops.serviceaccounts.drawbridge.dev", Display: "kubectl (ops/drainer)", Class: translate.ClassDrainHelper, TTL: 2 * time.Minute, MarkersCancel: true},
		},
		"kured by its service account": {
			translate.CallerInput{Username: "system:serviceaccount:kube-system:kured", Manager: "kured"},
			translate.Caller{Requester: "kured.kube-system.serviceaccounts.drawbridge.dev", Display: "kured (kube-system/kured)", Class: translate.ClassDrainHelper, TTL: 2 * time.Minute, MarkersCancel: true},
		},
		"Karpenter": {
			translate.CallerInput{Username: "system:serviceaccount:kube-system:karpenter", Manager: "karpenter"},
			translate.Caller{Requester: "karpenter.kube-system.serviceaccounts.drawbridge.dev", Display: "karpenter (kube-system/karpenter)", Class: translate.ClassKarpenter, TTL: 2 * time.Minute, MarkersCancel: true},
		},
		"Cluster Autoscaler without any manager": {
			translate.CallerInput{Username: "system:serviceaccount:kube-system:release-cluster-autoscaler"},
			translate.Caller{Requester: "release-cluster-autoscaler.kube-system.serviceaccounts.drawbridge.dev", Display: "cluster-autoscaler (kube-system/release-cluster-autoscaler)", Class: translate.ClassClusterAutoscaler, TTL: 15 * time.Minute},
		},
		"Cluster API by its user agent": {
			translate.CallerInput{Username: "kubernetes-admin", Manager: "cluster-api-controller-manager"},
			translate.Caller{Requester: "kubernetes-admin.users.drawbridge.dev", Display: "cluster-api-controller-manager (kubernetes-admin)", Class: translate.ClassClusterAPI, TTL: 3 * time.Minute, MarkersCancel: true},
		},
		"Cluster API in a workload cluster": {
			translate.CallerInput{Username: "kubernetes-admin", Manager: "manager"},
			translate.Caller{Requester: "kubernetes-admin.users.drawbridge.dev", Display: "manager (kubernetes-admin)", Class: translate.ClassClusterAPI, TTL: 3 * time.Minute, MarkersCancel: true},
		},
		"an administrator with another program": {
			translate.CallerInput{Username: "kubernetes-admin", Manager: "drainer"},
			translate.Caller{Requester: "kubernetes-admin.users.drawbridge.dev", Display: "drainer (kubernetes-admin)", Class: translate.ClassUnknown, TTL: 10 * time.Minute, MarkersCancel: true},
		},
		"Machine Config Operator": {
			translate.CallerInput{Username: "system:serviceaccount:openshift-machine-config-operator:machine-config-controller", Manager: "machine-config-controller"},
			translate.Caller{Requester: "machine-config-controller.openshift-machine-config-operator.serviceaccounts.drawbridge.dev", Display: "machine-config-controller (openshift-machine-config-operator/machine-config-controller)", Class: translate.ClassMCO, TTL: 10 * time.Minute, MarkersCancel: true},
		},
		"Gardener": {
			translate.CallerInput{Username: "system:serviceaccount:kube-system:machine-controller-manager"},
			translate.Caller{Requester: "machine-controller-manager.kube-system.serviceaccounts.drawbridge.dev", Display: "gardener (kube-system/machine-controller-manager)", Class: translate.ClassGardener, TTL: 15 * time.Minute, MarkersCancel: true},
		},
		"an upgrade by the provider": {
			translate.CallerInput{Username: "eks:node-manager", Manager: "Go-http-client"},
			translate.Caller{Requester: "eks-node-manager-efc6ed85.users.drawbridge.dev", Display: "Go-http-client (eks:node-manager)", Class: translate.ClassManagedUpgrade, TTL: 5 * time.Minute, MarkersCancel: true},
		},
		"descheduler signs its evictions": {
			translate.CallerInput{Username: "system:serviceaccount:ops:cleaner", Annotations: map[string]string{"requested-by": "sigs.k8s.io/descheduler"}},
			translate.Caller{Requester: "cleaner.ops.serviceaccounts.drawbridge.dev", Display: "descheduler (ops/cleaner)", Class: translate.ClassDescheduler, TTL: time.Hour},
		},
		"a stranger": {
			translate.CallerInput{Username: "bob", Manager: "curl"},
			translate.Caller{Requester: "bob.users.drawbridge.dev", Display: "curl (bob)", Class: translate.ClassUnknown, TTL: 10 * time.Minute, MarkersCancel: true},
		},
		"a user whose name begins like a tool is no tool": {
			translate.CallerInput{Username: "karpenter"},
			translate.Caller{Requester: "karpenter.users.drawbridge.dev", Display: "karpenter", Class: translate.ClassUnknown, TTL: 10 * time.Minute, MarkersCancel: true},
		},
		"control characters never reach a terminal": {
			translate.CallerInput{Username: "bob\x1b[31m\n", Manager: "ku\x00rl"},
			translate.Caller{Requester: translate.RequesterName("bob\x1b[31m\n"), Display: "kurl (bob[31m)", Class: translate.ClassUnknown, TTL: 10 * time.Minute, MarkersCancel: true},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, translate.Recognize(tc.in)); diff != "" {
				t.Errorf("caller (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRecognizeUsesTheToolForDisplayOnly(t *testing.T) {
	a := translate.Recognize(translate.CallerInput{Username: "alice", Manager: "kubectl"})
	b := translate.Recognize(translate.CallerInput{Username: "alice", Manager: "karpenter"})
	if a.Requester != b.Requester {
		t.Errorf("the same user is %s and %s", a.Requester, b.Requester)
	}
}

func TestDisplayIsBounded(t *testing.T) {
	for _, unit := range []string{"a", "日"} {
		got := translate.Recognize(translate.CallerInput{Username: strings.Repeat(unit, 500), Manager: strings.Repeat(unit, 500)}).Display
		if n := utf8.RuneCountInString(got); n > 128 || !utf8.ValidString(got) {
			t.Errorf("display has %d characters, valid %t: %s", n, utf8.ValidString(got), got)
		}
	}
}
