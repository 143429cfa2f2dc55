package translate_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/drawbridge-dev/drawbridge/translate"
)

var t0 = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)

// record is a kubectl drain of node-1, heard of at t0 and good for two minutes.
func record(change ...func(*translate.LeaseRecord)) translate.LeaseRecord {
	rec := translate.LeaseRecord{
		Requester: "alice.users.drawbridge.dev", Node: "node-1", Display: "kubectl (alice)",
		Class: translate.ClassKubectl, TTL: 2 * time.Minute, RenewedAt: t0, Markers: []string{"unschedulable"},
	}
	for _, c := range change {
		c(&rec)
	}
	return rec
}

func TestLeaseKeepsTheRecord(t *testing.T) {
	cases := map[string]translate.LeaseRecord{
		"with a marker":  record(),
		"with none":      record(func(r *translate.LeaseRecord) { r.Markers = nil }),
		"with several":   record(func(r *translate.LeaseRecord) { r.Markers = []string{"a/b", "deleting", "unschedulable"} }),
		"with no holder": record(func(r *translate.LeaseRecord) { r.Display = "" }),
		"in microseconds": record(func(r *translate.LeaseRecord) {
			r.RenewedAt = t0.Add(123456 * time.Microsecond)
		}),
	}
	for name, want := range cases {
		t.Run(name, func(t *testing.T) {
			lease := translate.EncodeLease(want, "drawbridge-system")
			got, err := translate.DecodeLease(lease)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("record (-want +got):\n%s", diff)
			}
			if lease.Namespace != "drawbridge-system" || lease.Name != translate.LeaseName(want.Requester, want.Node) ||
				lease.Labels[translate.LeaseLabel] != translate.LeaseLabelValue {
				t.Errorf("metadata of the lease: %+v", lease.ObjectMeta)
			}
		})
	}
}

func TestDecodeLeaseRefusesWhatSaysTooLittle(t *testing.T) {
	cases := map[string]struct {
		change func(*coordinationv1.Lease)
		want   string
	}{
		"no requester": {func(l *coordinationv1.Lease) { delete(l.Annotations, "drawbridge.dev/requester") }, "annotation drawbridge.dev/requester"},
		"no time":      {func(l *coordinationv1.Lease) { l.Spec.RenewTime = nil }, "spec.renewTime"},
		"no duration":  {func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = nil }, "spec.leaseDurationSeconds"},
		"a duration of zero": {func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = new(int32) },
			"spec.leaseDurationSeconds"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			lease := translate.EncodeLease(record(), "ns")
			tc.change(lease)
			_, err := translate.DecodeLease(lease)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("want an error about %s, got %v", tc.want, err)
			}
		})
	}
	t.Run("an unknown class is not refused", func(t *testing.T) {
		lease := translate.EncodeLease(record(), "ns")
		lease.Annotations["drawbridge.dev/caller-class"] = "newer-version"
		got, err := translate.DecodeLease(lease)
		if err != nil || got.Class != translate.ClassUnknown {
			t.Errorf("got class %q, error %v", got.Class, err)
		}
	})
}

func TestLeaseName(t *testing.T) {
	long := strings.Repeat("a", 63)
	names := map[string]bool{}
	for _, pair := range [][2]string{
		{"alice.users.drawbridge.dev", "node-1"}, {"alice.users.drawbridge.dev", "node-2"}, {"bob.users.drawbridge.dev", "node-1"},
		{"alice.users.drawbridge.devn", "ode-1"}, {long + ".x", long}, {long + ".x", long + "b"}, {"", ""}, {"a", "ip-10-0-0-1.eu.example"},
	} {
		name := translate.LeaseName(pair[0], pair[1])
		if errs := validation.IsDNS1123Label(name); len(errs) > 0 {
			t.Errorf("lease name %q: %v", name, errs)
		}
		if names[name] {
			t.Errorf("%v has the name of another pair: %s", pair, name)
		}
		names[name] = true
	}
	if got, want := translate.LeaseName("alice.users.drawbridge.dev", "node-1"), "alice-node-1-"; !strings.HasPrefix(got, want) {
		t.Errorf("want a name that begins with %s, got %s", want, got)
	}
}

func TestJudgeLease(t *testing.T) {
	expires := t0.Add(2 * time.Minute)
	cordoned := translate.NodeView{Known: true, Markers: []string{"unschedulable"}}
	open := translate.NodeView{Known: true}
	class := func(c translate.CallerClass) func(*translate.LeaseRecord) {
		return func(r *translate.LeaseRecord) { r.Class = c }
	}
	cases := map[string]struct {
		rec         translate.LeaseRecord
		node        translate.NodeView
		now         time.Time
		want        translate.LeaseState
		wantRecheck time.Time
	}{
		"fresh on a cordoned node":             {record(), cordoned, t0, translate.LeaseAlive, expires},
		"a moment before it runs out":          {record(), cordoned, expires.Add(-1), translate.LeaseAlive, expires},
		"it runs out on the dot":               {record(), cordoned, expires, translate.LeaseExpired, time.Time{}},
		"the clock jumps back":                 {record(), cordoned, t0.Add(-time.Hour), translate.LeaseAlive, expires},
		"uncordoned":                           {record(), open, t0, translate.LeaseMarkersGone, expires},
		"uncordoned and run out":               {record(), open, expires, translate.LeaseExpired, time.Time{}},
		"a marker that was not recorded stays": {record(), translate.NodeView{Known: true, Markers: []string{"deleting"}}, t0, translate.LeaseMarkersGone, expires},
		"one of two markers stays": {record(func(r *translate.LeaseRecord) { r.Markers = []string{"deleting", "unschedulable"} }),
			cordoned, t0, translate.LeaseAlive, expires},
		"no marker was ever seen":         {record(func(r *translate.LeaseRecord) { r.Markers = nil }), open, t0, translate.LeaseAlive, expires},
		"nobody looked at the node":       {record(), translate.NodeView{}, t0, translate.LeaseAlive, expires},
		"the node is gone":                {record(), translate.ViewNode(nil), t0, translate.LeaseAlive, expires},
		"the node is gone, lease run out": {record(), translate.ViewNode(nil), expires, translate.LeaseExpired, time.Time{}},
		"Cluster Autoscaler drops its taint": {record(class(translate.ClassClusterAutoscaler)), open, t0,
			translate.LeaseAlive, expires},
		"descheduler marks nothing": {record(class(translate.ClassDescheduler)), open, t0, translate.LeaseAlive, expires},
		"Karpenter rolls back":      {record(class(translate.ClassKarpenter)), open, t0, translate.LeaseMarkersGone, expires},
		"Karpenter is silent while its node is deleted": {record(class(translate.ClassKarpenter)),
			translate.NodeView{Known: true, Deleting: true, Markers: []string{"deleting"}}, expires.Add(time.Hour), translate.LeaseAlive, time.Time{}},
		"Karpenter is silent, its node is not deleted": {record(class(translate.ClassKarpenter)), cordoned, expires, translate.LeaseExpired, time.Time{}},
		"Karpenter is silent, nobody looked at its node": {record(class(translate.ClassKarpenter)), translate.NodeView{}, expires,
			translate.LeaseAlive, expires.Add(2 * time.Minute)},
		"kubectl is silent while its node is deleted": {record(),
			translate.NodeView{Known: true, Deleting: true, Markers: []string{"unschedulable"}}, expires, translate.LeaseExpired, time.Time{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, recheck := translate.JudgeLease(tc.rec, tc.node, tc.now)
			if diff := cmp.Diff(tc.want.String(), got.String()); diff != "" {
				t.Errorf("state (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantRecheck, recheck); diff != "" {
				t.Errorf("recheck (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLeaseTimesSurviveTheAPI(t *testing.T) {
	lease := translate.EncodeLease(record(func(r *translate.LeaseRecord) { r.RenewedAt = t0.Add(999 * time.Millisecond) }), "ns")
	if got := lease.Spec.RenewTime.UTC().Format(metav1.RFC3339Micro); got != "2026-09-01T12:00:00.999000Z" {
		t.Errorf("renewTime is %s", got)
	}
}
