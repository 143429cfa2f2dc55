package translate_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/drawbridge-dev/drawbridge/translate"
)

// Whatever a caller says about itself, it is one line that fits, and its lease has a
// name that the API server takes and says the same when it is read back.
func FuzzRecognize(f *testing.F) {
	f.Add("alice", "kubectl", "requested-by", "sigs.k8s.io/descheduler", "node-1")
	f.Add("system:serviceaccount:ns:name", "", "", "", "")
	f.Add("system:node:n", "karpenter\n", "x", "y", "Node.With.Dots")
	f.Add("\xff\x00", "\u202e", "requested-by", "\n", "-")
	f.Fuzz(func(t *testing.T, user, manager, key, value, node string) {
		caller := translate.Recognize(translate.CallerInput{Username: user, Manager: manager, Annotations: map[string]string{key: value}})
		for _, r := range caller.Display {
			if r == '\n' || r == '\r' || r == 0 {
				t.Errorf("user %q with %q is shown as %q", user, manager, caller.Display)
			}
		}
		if n := len([]rune(caller.Display)); n == 0 || n > 128 {
			t.Errorf("user %q is shown with %d characters", user, n)
		}
		if caller.TTL <= 0 {
			t.Errorf("user %q has %s", user, caller.TTL)
		}
		want := translate.LeaseRecord{
			Requester: caller.Requester, Node: node, Display: caller.Display, Class: caller.Class, TTL: caller.TTL,
			RenewedAt: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
		}
		lease := translate.EncodeLease(want, "drawbridge-system")
		if errs := validation.IsDNS1123Subdomain(lease.Name); len(errs) > 0 {
			t.Errorf("user %q on %q has the lease %q: %v", user, node, lease.Name, errs)
		}
		got, err := translate.DecodeLease(lease)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("record (-want +got):\n%s", diff)
		}
	})
}

// Leases can be edited by hand.
func FuzzDecodeLease(f *testing.F) {
	f.Add("alice.users.drawbridge.dev", "n1", "kubectl", "unschedulable,deleting", int32(120))
	f.Add("", "", "nobody", ",,", int32(-1))
	f.Fuzz(func(t *testing.T, requester, node, class, markers string, seconds int32) {
		lease := translate.EncodeLease(translate.LeaseRecord{Requester: requester, Node: node, Class: translate.CallerClass(class), TTL: time.Minute}, "ns")
		lease.Annotations[translate.LeaseMarkersAnnotation] = markers
		lease.Spec = coordinationv1.LeaseSpec{LeaseDurationSeconds: &seconds, RenewTime: &metav1.MicroTime{Time: time.Unix(0, 0)}}
		rec, err := translate.DecodeLease(lease)
		if (err == nil) != (requester != "" && seconds > 0) {
			t.Fatalf("requester %q, %d seconds: %v", requester, seconds, err)
		}
		if err != nil {
			return
		}
		// It answers, and never with a time that has passed.
		now := time.Unix(30, 0)
		if _, recheck := translate.JudgeLease(rec, translate.NodeView{Known: true}, now, time.Hour); !recheck.IsZero() && !recheck.After(now) {
			t.Errorf("look again at %s, it is %s", recheck, now)
		}
	})
}
