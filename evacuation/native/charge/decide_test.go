package charge

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var now = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

func TestWhoIsInCharge(t *testing.T) {
	other := func(ago time.Duration, running bool) Evidence {
		return Evidence{Manager: "evictionrequest-controller", Eviction: "shop/pod-1-web", At: now.Add(-ago), Running: running}
	}
	ours, theirs := State{InCharge: Drawbridge, Since: now.Add(-time.Hour)}, State{InCharge: Cluster, Since: now.Add(-time.Hour)}
	for name, tc := range map[string]struct {
		in         Input
		want       bool
		remembered Mode
	}{
		"nobody, if the API is not served":             {Input{Mode: Auto}, false, ""},
		"Drawbridge, if nobody else was seen":          {Input{Mode: Auto, Served: true}, true, Drawbridge},
		"the cluster, if somebody else moves one":      {Input{Mode: Auto, Served: true, Running: other(time.Hour, true)}, false, Cluster},
		"Drawbridge, if what others moved has ended":   {Input{Mode: Auto, Served: true, Seen: other(time.Hour, false)}, true, Drawbridge},
		"Drawbridge, if a person says so":              {Input{Mode: Drawbridge, Served: true, Running: other(time.Hour, true)}, true, Drawbridge},
		"Drawbridge, if a person deletes what it knew": {Input{Mode: Auto, Served: true, Deleted: true, Running: other(time.Hour, true)}, true, Drawbridge},
		"never Drawbridge, if a person says so":        {Input{Mode: Cluster, Served: true, State: ours}, false, ""},
		"Drawbridge stays in charge":                   {Input{Mode: Auto, Served: true, State: ours, Seen: other(2*time.Hour, true)}, true, ""},
		"until another one writes":                     {Input{Mode: Auto, Served: true, State: ours, Seen: other(0, true)}, false, Cluster},
		"also what ends by that":                       {Input{Mode: Drawbridge, Served: true, State: ours, Seen: other(time.Hour, false)}, false, Cluster},
		"and then for good":                            {Input{Mode: Drawbridge, Served: true, State: theirs}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			tc.in.Now = now
			d := Decide(tc.in)
			got := Mode("")
			if d.Remember != nil {
				got = d.Remember.InCharge
			}
			if d.InCharge != tc.want || got != tc.remembered {
				t.Errorf("in charge %t, remembered %q; want %t, %q", d.InCharge, got, tc.want, tc.remembered)
			}
		})
	}
}

func TestWhatAnotherControllerWrites(t *testing.T) {
	wrote := func(manager, subresource, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Subresource: subresource, Time: new(metav1.NewTime(now)), FieldsV1: metav1.NewFieldsV1(fields)}
	}
	const conditions = `{"f:status":{"f:conditions":{}}}`
	for name, tc := range map[string]struct {
		entry metav1.ManagedFieldsEntry
		want  string
	}{
		"another controller":      {wrote("evictionrequest-controller", "status", conditions), "evictionrequest-controller"},
		"a plan":                  {wrote("other", "status", `{"f:status":{"f:targetResponders":{}}}`), "other"},
		"ours":                    {wrote(Manager, "status", conditions), ""},
		"a responder":             {wrote("acme.example.com/migrate", "status", `{"f:status":{"f:responders":{}}}`), ""},
		"a person":                {wrote("kubectl-edit", "status", conditions), ""},
		"labels are not a status": {wrote("other", "", `{"f:metadata":{"f:labels":{}}}`), ""},
	} {
		t.Run(name, func(t *testing.T) {
			e := &lifecyclev1alpha1.Eviction{}
			e.ManagedFields = []metav1.ManagedFieldsEntry{tc.entry}
			if diff := cmp.Diff(tc.want, Foreign(e, Manager).Manager); diff != "" {
				t.Errorf("manager (-want +got):\n%s", diff)
			}
		})
	}
}
