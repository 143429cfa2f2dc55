//go:build unix

package kubevirt

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/vmcrds"
)

// What an eviction may be answered.
const (
	granted = "granted"
	refused = "refused"
	// triggered is a refusal with the words by which the descheduler knows that the
	// eviction continues.
	triggered = "triggered"
)

// theirs asks KubeVirt's own eviction webhook, past the API server.
var theirs struct {
	url       string
	authority []byte
	// old: there is none for hotplug pods, which came after KubeVirt 1.4.
	old bool
}

// decision is a case of the table. The call is a dry run, the first one or a later one.
type decision struct{ strategy, migratable, pod, mark, call string }

// documented is the situation in the table of docs/guides/kubevirt.md in which the
// answers differ; empty if there is none.
func (d decision) documented() string {
	unknown := d.migratable == "Unknown" || d.migratable == "-"
	switch {
	case d.pod == "orphan":
		return "the machine's object is gone"
	case d.pod == "pending":
		return "the pod is Pending"
	case d.pod == "target":
		return "the pod is the target of a migration and runs"
	case d.strategy == "LiveMigrateIfPossible" && unknown:
		return "LiveMigrateIfPossible, the same"
	case d.strategy == "LiveMigrate" && unknown:
		return "LiveMigrate; the machine is starting"
	case theirs.old && d.pod == "hotplug":
		return "KubeVirt 1.4: a hotplug pod"
	case theirs.old && d.pod == "launcher" && d.mark != "none":
		return "KubeVirt 1.4: the machine is marked already"
	}
	return ""
}

// The real decisions of both, for every strategy, kind of pod and mark, as dry runs: the
// machines stay as they are. With KubeVirt's mark for the node it is a later call, with
// one for another node it is left over. The run prints the table.
func TestDecisions(t *testing.T) {
	needKubeVirt(t)
	startManager(t)
	withoutTheirs(t)
	namespace := kube.Namespace(t)
	nodes := addNodes(t, namespace, 2)
	machines := decisionMachines(t, namespace, nodes[0])
	cordon(t, nodes[1]) // KubeVirt's own migrations of the marked machines find no room.
	var table decisionTable
	defer table.log(t)
	for _, mark := range []string{"", nodes[1], nodes[0]} {
		for _, d := range machines {
			markMachine(t, namespace, d.name(), mark)
			d.mark, d.call = map[string]string{"": "none", nodes[1]: "left over", nodes[0]: "its node"}[mark], "dry run"
			for _, d.pod = range podKinds {
				pod := podOf(t, namespace, d, nodes)
				their := askTheirs(t, pod, true)
				var our, said string
				for deadline := time.Now().Add(5 * time.Second); ; { // What the manager has not seen yet.
					if our, said = askOurs(t, pod, true); our == their || d.documented() != "" || time.Now().After(deadline) {
						break
					}
				}
				table.add(t, d, their, our, said)
			}
		}
	}
	orphan := decision{strategy: "any", migratable: "any", pod: "orphan", mark: "none", call: "dry run"}
	pod := podOf(t, namespace, orphan, nodes)
	our, said := askOurs(t, pod, true)
	table.add(t, orphan, askTheirs(t, pod, true), our, said)
}

// The same with calls that count: the first one for a pod, and the next one. Each system
// has machines of its own, because both mark, and a pod that is granted is gone.
func TestRealDecisions(t *testing.T) {
	needKubeVirt(t)
	startManager(t)
	withoutTheirs(t)
	var table decisionTable
	defer table.log(t)
	for _, kind := range podKinds {
		var namespaces [2]string
		var nodes [2][]string
		var machines []decision
		for i := range namespaces {
			namespaces[i] = kube.Namespace(t)
			nodes[i] = addNodes(t, namespaces[i], 2)
			machines = decisionMachines(t, namespaces[i], nodes[i][0])
			cordon(t, nodes[i][1])
		}
		for _, d := range machines {
			d.pod, d.mark, d.call = kind, "none", "first"
			forThem, forUs := podOf(t, namespaces[0], d, nodes[0]), podOf(t, namespaces[1], d, nodes[1])
			their := askTheirs(t, forThem, false)
			our, said := askOurs(t, forUs, false)
			table.add(t, d, their, our, said)
			if their == granted || our == granted {
				continue // One of the pods is gone.
			}
			d.call, d.mark = "again", "its own"
			our, said = askOurs(t, forUs, false)
			table.add(t, d, askTheirs(t, forThem, false), our, said)
		}
	}
}

// podKinds are the kinds of pods that the machines of the tables have.
var podKinds = []string{"launcher", "target", "pending", "ended", "hotplug"}

func (d decision) name() string {
	return strings.ToLower(fmt.Sprintf("%s-%s", d.strategy, strings.ReplaceAll(d.migratable, "-", "absent")))
}

// decisionMachines runs a machine of each strategy and migratability.
func decisionMachines(t *testing.T, namespace, node string) []decision {
	t.Helper()
	var all []decision
	for _, strategy := range []string{"Unset", "None", "LiveMigrate", "LiveMigrateIfPossible", "External"} {
		for _, migratable := range []string{"True", "False", "Unknown", "-"} {
			all = append(all, decision{strategy: strategy, migratable: migratable})
		}
	}
	guests.play(namespace, func(name string) guest {
		i := slices.IndexFunc(all, func(d decision) bool { return d.name() == name })
		return guest{migratable: all[i].migratable, held: true}
	})
	for _, d := range all {
		strategy := strings.TrimPrefix(d.strategy, "Unset")
		if err := admin.Create(t.Context(), newMachine(namespace, d.name(), node, strategy)); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range all {
		runsOn(t, namespace, d.name(), node)
	}
	return all
}

// markMachine sets KubeVirt's mark, under its account.
func markMachine(t *testing.T, namespace, name, node string) {
	t.Helper()
	eventually(t, "machine "+name+" to be marked", func(ctx context.Context) error {
		machine, err := getMachine(ctx, namespace, name)
		if err != nil {
			return err
		}
		if unstructured.RemoveNestedField(machine.Object, "status", "evacuationNodeName"); node != "" {
			vmcrds.Set(machine, "status.evacuationNodeName", node)
		}
		return guests.update(ctx, vmcrds.Text(machine, "status.nodeName"), machine)
	})
}

// podOf is a pod of that kind of a machine; all but the launcher are made by the test.
func podOf(t *testing.T, namespace string, d decision, nodes []string) *corev1.Pod {
	t.Helper()
	if d.pod == "launcher" {
		return launcher(t, namespace, d.name(), nodes[0])
	}
	pod := builder.Pod(namespace, "virt-launcher-"+d.pod+"-"+d.name()).Label("kubevirt.io", "virt-launcher").Annotation("kubevirt.io/domain", d.name())
	if machine, err := getMachine(t.Context(), namespace, d.name()); err == nil {
		// Not as its controller, so that KubeVirt does not count them.
		pod = pod.Owner(metav1.OwnerReference{APIVersion: "kubevirt.io/v1", Kind: vmcrds.Machine.Kind, Name: machine.GetName(), UID: machine.GetUID()})
	}
	switch d.pod {
	case "target":
		pod = pod.Node(nodes[1])
	case "pending":
		pod = pod.NodeSelector("nobody.example.com/has", "this")
	case "ended":
		pod = pod.Node(nodes[0])
	case "orphan":
		pod = builder.Pod(namespace, "virt-launcher-orphan").Node(nodes[0]).Label("kubevirt.io", "virt-launcher").Annotation("kubevirt.io/domain", "nobody")
	case "hotplug":
		owner := launcher(t, namespace, d.name(), nodes[0])
		pod = builder.Pod(namespace, "hp-volume-"+d.name()).Node(nodes[0]).Label("kubevirt.io", "hotplug-disk").
			Owner(metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: owner.Name, UID: owner.UID})
	}
	want := pod.Obj()
	got := &corev1.Pod{}
	if admin.Get(t.Context(), client.ObjectKeyFromObject(want), got) == nil {
		return got // Made for another mark.
	}
	if err := admin.Create(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	if d.pod == "pending" {
		return want
	}
	eventually(t, "pod "+want.Name+" to run", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(want), want); err != nil {
			return err
		}
		if want.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("it is %s", want.Status.Phase)
		}
		return nil
	})
	if d.pod == "ended" {
		data := []byte(`{"status":{"phase":"Succeeded"}}`)
		if err := admin.Status().Patch(t.Context(), want, client.RawPatch(types.MergePatchType, data)); err != nil {
			t.Fatal(err)
		}
	}
	return want
}

// decisionTable has a row for each decision that differs.
type decisionTable struct {
	cases, differences int
	rows               strings.Builder
}

// add compares two answers. A difference that the guide has no row for fails the test.
func (table *decisionTable) add(t *testing.T, d decision, their, our, said string) {
	t.Helper()
	if table.cases++; our == their {
		return
	}
	table.differences++
	fmt.Fprintf(&table.rows, "| %s | %s | %s | %s | %s | %s | %s | %s |\n", d.strategy, d.migratable, d.pod, d.mark, d.call, their, our, d.documented())
	if d.documented() == "" {
		t.Errorf("%+v: KubeVirt says %s, Drawbridge %s, and the guide does not say why: %s", d, their, our, said)
	}
}

func (table *decisionTable) log(t *testing.T) {
	t.Helper()
	t.Logf("%d decisions, %d differ\n| Strategy | Live-migratable | Pod | KubeVirt's mark | Call | KubeVirt | Drawbridge | Row of the guide |\n|---|---|---|---|---|---|---|---|\n%s",
		table.cases, table.differences, table.rows.String())
}

// callOn is an eviction of a pod.
func callOn(pod *corev1.Pod, dryRun bool) *policyv1.Eviction {
	call := evictionOf(pod)
	if dryRun {
		call.DeleteOptions.DryRun = []string{metav1.DryRunAll}
	}
	return call
}

// askTheirs asks KubeVirt's webhook as the API server does.
func askTheirs(t *testing.T, pod *corev1.Pod, dryRun bool) string {
	t.Helper()
	body := must(json.Marshal(callOn(pod, dryRun)))(t)
	review := &admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "u", Namespace: pod.Namespace, Name: pod.Name, Operation: admissionv1.Create, DryRun: &dryRun, SubResource: "eviction",
			Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"}, Object: runtime.RawExtension{Raw: body},
		},
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(theirs.authority)
	caller := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
	defer caller.CloseIdleConnections()
	content := must(json.Marshal(review))(t)
	request := must(http.NewRequestWithContext(t.Context(), http.MethodPost, theirs.url, bytes.NewReader(content)))(t)
	request.Header.Set("Content-Type", "application/json")
	response, err := caller.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }() // It has been read.
	if err := json.NewDecoder(response.Body).Decode(review); err != nil {
		t.Fatal(err)
	}
	if review.Response.Allowed {
		return granted
	}
	return refusal(review.Response.Result.Message)
}

// askOurs asks the API server. Our webhook lets a dry run pass, and warns of what the
// call would be answered; budgets count in dry runs, too.
func askOurs(t *testing.T, pod *corev1.Pod, dryRun bool) (kind, said string) {
	t.Helper()
	got := evict(t, pod, callOn(pod, dryRun))
	said = fmt.Sprintf("%d %s %s", got.code, got.warning, got.body)
	if got.code == http.StatusCreated && got.warning == "" {
		return granted, said
	}
	return refusal(got.warning + got.body), said
}

func refusal(text string) string {
	if strings.Contains(text, "Eviction triggered evacuation") {
		return triggered
	}
	return refused
}
