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
		"with a marker": record(),
		"with none":     record(func(r *translate.LeaseRecord) { r.Markers = nil }),
		"with several":  record(func(r *translate.LeaseRecord) { r.Markers = []string{"a/b", "deleting", "unschedulable"} }),
		"with other tools": record(func(r *translate.LeaseRecord) {
			r.Others = []translate.Voice{
				{Class: translate.ClassDescheduler, TTL: time.Hour, HeardAt: t0.Add(-time.Minute)},
				{Class: translate.ClassUnknown, TTL: 10 * time.Minute, HeardAt: t0.Add(time.Microsecond)},
			}
		}),
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
	const limit = 24 * time.Hour
	expires := t0.Add(160 * time.Second) // Two minutes, and what the next renewal may be late.
	cordoned := translate.NodeView{Known: true, Markers: []string{"unschedulable"}}
	open := translate.NodeView{Known: true}
	class := func(c translate.CallerClass) func(*translate.LeaseRecord) {
		return func(r *translate.LeaseRecord) { r.Class = c }
	}
	marked := func(markers ...string) func(*translate.LeaseRecord) {
		return func(r *translate.LeaseRecord) { r.Markers = markers }
	}
	heardToo := func(c translate.CallerClass, ttl time.Duration, at time.Time) func(*translate.LeaseRecord) {
		return func(r *translate.LeaseRecord) {
			r.Others = append(r.Others, translate.Voice{Class: c, TTL: ttl, HeardAt: at})
		}
	}
	helper := class(translate.ClassDrainHelper)
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
		"one of two markers stays":             {record(marked("deleting", "unschedulable")), cordoned, t0, translate.LeaseAlive, expires},
		"no marker was ever seen":              {record(marked()), open, t0, translate.LeaseAlive, expires},
		"nobody looked at the node":            {record(), translate.NodeView{}, t0, translate.LeaseAlive, expires},
		"the node is gone":                     {record(), translate.ViewNode(nil), t0, translate.LeaseAlive, expires},
		"the node is gone, lease run out":      {record(), translate.ViewNode(nil), expires, translate.LeaseExpired, time.Time{}},
		"Cluster Autoscaler drops its taint":   {record(class(translate.ClassClusterAutoscaler)), open, t0, translate.LeaseAlive, expires},
		"descheduler marks nothing":            {record(class(translate.ClassDescheduler)), open, t0, translate.LeaseAlive, expires},
		"Karpenter rolls back":                 {record(class(translate.ClassKarpenter)), open, t0, translate.LeaseMarkersGone, expires},
		"Karpenter is silent while its node is deleted": {record(class(translate.ClassKarpenter)),
			translate.NodeView{Known: true, Deleting: true, Markers: []string{"deleting"}}, expires.Add(time.Hour), translate.LeaseAlive, time.Time{}},
		"Karpenter is silent, its node is not deleted": {record(class(translate.ClassKarpenter)), cordoned, expires, translate.LeaseExpired, time.Time{}},
		"Karpenter is silent, nobody looked at its node": {record(class(translate.ClassKarpenter)), translate.NodeView{}, expires,
			translate.LeaseAlive, expires.Add(2 * time.Minute)},
		"kubectl is silent while its node is deleted": {record(),
			translate.NodeView{Known: true, Deleting: true, Markers: []string{"unschedulable"}}, expires, translate.LeaseExpired, time.Time{}},

		// Silence of a controller.
		"a controller is silent, its cordon stands":      {record(helper), cordoned, expires.Add(time.Hour), translate.LeaseAlive, t0.Add(limit)},
		"a controller is silent, its taint stands":       {record(helper, marked("medik8s.io/drain", "unschedulable")), translate.NodeView{Known: true, Markers: []string{"medik8s.io/drain"}}, expires, translate.LeaseAlive, t0.Add(limit)},
		"a controller is silent, its cordon is gone":     {record(helper), open, expires.Add(time.Hour), translate.LeaseMarkersGone, time.Time{}},
		"a controller is not silent, its cordon is gone": {record(helper), open, t0, translate.LeaseMarkersGone, expires},
		"a controller is silent, a marker came later":    {record(helper, marked()), cordoned, expires, translate.LeaseExpired, time.Time{}},
		"a controller is silent, nobody looked":          {record(helper), translate.NodeView{}, expires, translate.LeaseAlive, expires.Add(2 * time.Minute)},
		"a controller is silent, its node is gone":       {record(helper), translate.ViewNode(nil), expires, translate.LeaseExpired, time.Time{}},
		"nobody takes the marker away":                   {record(helper), cordoned, t0.Add(limit), translate.LeaseExpired, time.Time{}},
		"an unknown caller is silent, the cordon stands": {record(class(translate.ClassUnknown)), cordoned, expires, translate.LeaseAlive, t0.Add(limit)},
		"the marker of somebody else stands":             {record(helper, marked("ToBeDeletedByClusterAutoscaler")), translate.NodeView{Known: true, Markers: []string{"ToBeDeletedByClusterAutoscaler"}}, expires, translate.LeaseExpired, time.Time{}},
		"Cluster Autoscaler is silent, its taint stands": {record(class(translate.ClassClusterAutoscaler), marked("ToBeDeletedByClusterAutoscaler")), translate.NodeView{Known: true, Markers: []string{"ToBeDeletedByClusterAutoscaler"}}, expires, translate.LeaseAlive, t0.Add(limit)},
		"Cluster Autoscaler is silent, a cordon stands":  {record(class(translate.ClassClusterAutoscaler)), cordoned, expires, translate.LeaseExpired, time.Time{}},
		"descheduler is silent on somebody's node":       {record(class(translate.ClassDescheduler)), cordoned, expires, translate.LeaseExpired, time.Time{}},

		// Several tools under one name.
		"descheduler asked, kubectl is silent":            {record(heardToo(translate.ClassDescheduler, time.Hour, t0)), cordoned, expires, translate.LeaseAlive, t0.Add(80 * time.Minute)},
		"descheduler asked, kubectl's node is uncordoned": {record(heardToo(translate.ClassDescheduler, time.Hour, t0)), open, t0, translate.LeaseAlive, t0.Add(80 * time.Minute)},
		"both are silent": {record(heardToo(translate.ClassDescheduler, time.Hour, t0)), cordoned, t0.Add(80 * time.Minute), translate.LeaseExpired, time.Time{}},
		"one is silent for long, the other's drain is off": {record(heardToo(translate.ClassClusterAPI, 3*time.Minute, t0.Add(-time.Hour)), marked("unschedulable")), open, t0, translate.LeaseMarkersGone, time.Time{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, recheck := translate.JudgeLease(tc.rec, tc.node, tc.now, limit)
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
