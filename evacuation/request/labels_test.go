package request

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// webhookManager applies the entry of a legacy caller.
const webhookManager = translate.FieldManagerPrefix + "5d1c0a1b6a"

// fields is a managedFields entry of an apply of these labels.
func fields(manager string, labels ...string) metav1.ManagedFieldsEntry {
	members := map[string]any{".": map[string]any{}}
	for _, label := range labels {
		members["f:"+label] = map[string]any{}
	}
	raw, err := json.Marshal(map[string]any{"f:metadata": map[string]any{"f:labels": members}})
	if err != nil {
		panic(fmt.Sprintf("marshal fields: %v", err))
	}
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationApply,
		APIVersion: v1alpha1.SchemeGroupVersion.String(), FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(string(raw)),
	}
}

func labeled(labels map[string]string, entries ...metav1.ManagedFieldsEntry) *v1alpha1.EvictionRequest {
	er := newRequest().ResourceVersion("7").Obj()
	er.Labels, er.ManagedFields = labels, entries
	return er
}

func TestLabelsInSync(t *testing.T) {
	update := fields(labelManager, "app")
	update.Operation = metav1.ManagedFieldsOperationUpdate
	status := fields(labelManager, "app")
	status.Subresource = "status"

	tests := map[string]struct {
		request *v1alpha1.EvictionRequest
		pod     map[string]string
		want    bool
	}{
		"nothing to copy and nothing owned":                  {labeled(nil), nil, true},
		"57: a label is missing":                             {labeled(nil), map[string]string{"app": "web"}, false},
		"a copied label is in sync":                          {labeled(map[string]string{"app": "web"}, fields(labelManager, "app")), map[string]string{"app": "web"}, true},
		"58: another value is not":                           {labeled(map[string]string{"app": "old"}, fields(labelManager, "app")), map[string]string{"app": "web"}, false},
		"59: a label of the request alone does not matter":   {labeled(map[string]string{"app": "web", "team": "blue"}, fields(labelManager, "app"), fields("kubectl", "team")), map[string]string{"app": "web"}, true},
		"60: a label the pod got later":                      {labeled(map[string]string{"app": "web"}, fields(labelManager, "app")), map[string]string{"app": "web", "tier": "front"}, false},
		"R7: a label the pod lost is still owned":            {labeled(map[string]string{"app": "web"}, fields(labelManager, "app")), nil, false},
		"R7: a label the pod lost, another it got":           {labeled(map[string]string{"app": "web"}, fields(labelManager, "app")), map[string]string{"tier": "front"}, false},
		"R7: an equal label of somebody else is not ours":    {labeled(map[string]string{"app": "web"}, fields("kubectl", "app")), map[string]string{"app": "web"}, false},
		"R7: nor is it beside one of ours that the pod lost": {labeled(map[string]string{"app": "web", "tier": "front"}, fields("kubectl", "app"), fields(labelManager, "tier")), map[string]string{"app": "web"}, false},
		"a label with a prefix":                              {labeled(map[string]string{"app.kubernetes.io/name": "web"}, fields(labelManager, "app.kubernetes.io/name")), map[string]string{"app.kubernetes.io/name": "web"}, true},
		"an owned label that somebody removed":               {labeled(nil, fields(labelManager, "app")), map[string]string{"app": "web"}, false},
		"R7: the webhook has copied it":                      {labeled(map[string]string{"app": "web"}, fields(webhookManager, "app")), map[string]string{"app": "web"}, true},
		"R7: the webhook and we have":                        {labeled(map[string]string{"app": "web", "tier": "front"}, fields(webhookManager, "app"), fields(labelManager, "app", "tier")), map[string]string{"app": "web", "tier": "front"}, true},
		"60: another value than the webhook's":               {labeled(map[string]string{"app": "old"}, fields(webhookManager, "app")), map[string]string{"app": "web"}, false},
		"R7: a label of the webhook that the pod lost":       {labeled(map[string]string{"app": "web"}, fields(webhookManager, "app")), nil, false},
		"59: one that it lost and that is another's, too":    {labeled(map[string]string{"app": "web"}, fields(webhookManager, "app"), fields("kubectl", "app")), nil, true},
		"R7: a requester of ours has copied it":              {labeled(map[string]string{"app": "web"}, fields("rack.node-maintenance.drawbridge.dev", "app")), map[string]string{"app": "web"}, true},
		"R7: one of its labels that the pod lost":            {labeled(map[string]string{"app": "web"}, fields("surge.drawbridge.dev", "app")), nil, false},
		"R7: another requester's labels are its own":         {labeled(map[string]string{"app": "web"}, fields("rebalancer.example.com", "app")), map[string]string{"app": "web"}, false},
		"an update of that name is not our apply":            {labeled(map[string]string{"app": "web"}, update), map[string]string{"app": "web"}, false},
		"the status is not where labels are owned":           {labeled(map[string]string{"app": "web"}, status), map[string]string{"app": "web"}, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			owned, err := ownersOf(tc.request.ManagedFields)
			if err != nil {
				t.Fatalf("read the owners: %v", err)
			}
			if got := labelsInSync(tc.request, owned, tc.pod); got != tc.want {
				t.Errorf("in sync: got %t, want %t", got, tc.want)
			}
		})
	}
}

func TestUnreadableManagedFieldsAreAnError(t *testing.T) {
	broken := fields(labelManager, "app")
	broken.FieldsV1.SetRawBytes([]byte(`{"f:metadata":[]}`))
	if _, err := ownersOf(labeled(nil, broken).ManagedFields); err == nil {
		t.Error("got no error")
	}
}

func TestLabelPatchNamesTheVersionItWasDecidedFor(t *testing.T) {
	got, err := json.Marshal(labelPatch(labeled(map[string]string{"team": "blue"}), map[string]string{"app": "web"}))
	if err != nil {
		t.Fatalf("marshal patch: %v", err)
	}
	want := `{"kind":"EvictionRequest","apiVersion":"drawbridge.dev/v1alpha1","metadata":{` +
		`"name":"uid-1","namespace":"shop","uid":"er-1","resourceVersion":"7","labels":{"app":"web"}}}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("patch (-want +got):\n%s", diff)
	}
}
