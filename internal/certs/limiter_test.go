package certs

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Somebody who overwrites the bundle as soon as we have written it, as cert-manager's injector
// does, is not fought without a pause.
func TestABundleThatSomebodyOverwritesIsRepairedWithAPause(t *testing.T) {
	r := newRig(webhooks())
	r.settles(t)
	bundle := r.conf(t).Webhooks[0].ClientConfig.CABundle
	overwritten := func() reconcile.Result {
		conf := r.conf(t)
		conf.Webhooks[0].ClientConfig.CABundle = nil
		if err := r.Client.Update(t.Context(), conf); err != nil {
			t.Fatal(err)
		}
		r.writes = 0
		result, err := r.Reconcile(t.Context(), reconcile.Request{})
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	r.clock.Step(time.Minute)
	for range writesAtOnce {
		if overwritten(); r.writes != 1 {
			t.Fatalf("%d writes, want the repair at once", r.writes)
		}
	}
	for range 5 {
		if result := overwritten(); r.writes != 0 || result.RequeueAfter != time.Second {
			t.Fatalf("%d writes, the next after %s, want a pause of a second", r.writes, result.RequeueAfter)
		}
	}
	r.clock.Step(time.Second)
	r.settles(t)
	if diff := cmp.Diff(bundle, r.conf(t).Webhooks[0].ClientConfig.CABundle); diff != "" {
		t.Errorf("bundle after the pause (-want +got):\n%s", diff)
	}
}

// A new authority whose announcement is put off is not served, and not forgotten for the time that
// it needs to settle.
func TestAnAnnouncementThatIsPutOffComesSoon(t *testing.T) {
	r := unannounced(t)
	before := r.secret(t).Data[keyCert]
	var result reconcile.Result
	for range writesAtOnce + 1 {
		conf := r.conf(t)
		conf.Webhooks[0].ClientConfig.CABundle = nil
		if err := r.Client.Update(t.Context(), conf); err != nil {
			t.Fatal(err)
		}
		var err error
		if result, err = r.Reconcile(t.Context(), reconcile.Request{}); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(reconcile.Result{RequeueAfter: betweenWrites}, result); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, r.secret(t).Data[keyCert]); diff != "" {
		t.Errorf("a certificate that nobody was told of is served (-want +got):\n%s", diff)
	}
}
