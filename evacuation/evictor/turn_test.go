package evictor

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

func TestIsTurnOf(t *testing.T) {
	asked := func(by ...string) *v1alpha1.EvictionRequest {
		er := &v1alpha1.EvictionRequest{}
		er.Spec.Target.Pod = &v1alpha1.LocalPodReference{Name: "web"}
		for _, name := range by {
			er.Spec.Requesters = append(er.Spec.Requesters, v1alpha1.Requester{Name: name})
		}
		er.Status.TargetInterceptors = []v1alpha1.Interceptor{{Name: v1alpha1.ImperativeEvictionInterceptor}}
		er.Status.ActiveInterceptors = []string{v1alpha1.ImperativeEvictionInterceptor}
		return er
	}
	eviction := func(state lifecyclev1alpha1.ResponderStateType) *lifecyclev1alpha1.Eviction {
		e := &lifecyclev1alpha1.Eviction{}
		e.Status.TargetResponders = []lifecyclev1alpha1.TargetResponder{{Name: nativeName, State: state}}
		return e
	}
	active, inactive := eviction(lifecyclev1alpha1.ResponderStateActive), eviction(lifecyclev1alpha1.ResponderStateInactive)
	for _, tc := range []struct {
		name    string
		er      *v1alpha1.EvictionRequest
		native  *lifecyclev1alpha1.Eviction
		awaited bool
		want    bool
	}{
		{"nothing asks for the eviction", nil, nil, false, false},
		{"only we are asked", asked("drain.example.com"), nil, false, true},
		{"only natively is asked", nil, active, false, true},
		{"natively it is not the last stage", nil, inactive, false, false},
		{"both have reached the last stage", asked("drain.example.com"), active, false, true},
		{"ours has, the native one has not", asked("drain.example.com"), inactive, false, false},
		{"the Eviction needs ours, and runs", asked(v1alpha1.NativeInterceptor), active, false, true},
		{"the Eviction that needs ours has ended", asked(v1alpha1.NativeInterceptor), nil, false, false},
		{"the Eviction that needs ours has ended, but somebody else asks", asked(v1alpha1.NativeInterceptor, "drain.example.com"), nil, false, true},
		{"nobody asks any more", asked(), nil, false, false},
		{"the next Eviction has not begun yet", asked("drain.example.com"), nil, true, false},
		{"the Eviction that was waited for runs", asked("drain.example.com"), active, true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, IsTurnOf(tc.er, tc.native, tc.awaited)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAnEvictionIsNotCompletedBeforeItsTurnHasBegun(t *testing.T) {
	now := time.Date(2026, 11, 28, 10, 0, 0, 500, time.UTC)
	began := func(at time.Time) lifecyclev1alpha1.ResponderStatus {
		return lifecyclev1alpha1.ResponderStatus{StartTime: new(metav1.NewTime(at))}
	}
	for _, tc := range []struct {
		name   string
		stored lifecyclev1alpha1.ResponderStatus
		want   time.Time
	}{
		{"the turn has no time", lifecyclev1alpha1.ResponderStatus{}, now.Truncate(time.Second)},
		{"the turn began before", began(now.Add(-time.Minute)), now.Truncate(time.Second)},
		{"a clock that is ahead began it", began(now.Truncate(time.Second).Add(2 * time.Second)), now.Truncate(time.Second).Add(2 * time.Second)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, completionTime(tc.stored, now).Time); diff != "" {
				t.Errorf("completion time (-want +got):\n%s", diff)
			}
		})
	}
}

// unknownNative does not know yet which Evictions there are.
type unknownNative struct{}

var errNotKnown = errors.New("not known yet")

func (unknownNative) Running(context.Context, types.NamespacedName) (*lifecyclev1alpha1.Eviction, error) {
	return nil, errNotKnown
}
func (unknownNative) Awaited(context.Context, types.NamespacedName, *v1alpha1.EvictionRequest) (bool, error) {
	return false, errNotKnown
}
func (unknownNative) InCharge() bool                    { return false }
func (unknownNative) Notify(func(types.NamespacedName)) {}

// The pod may have native responders, which no other check of the evictor would see.
func TestNothingIsEvictedBeforeItIsKnownWhatThereIsNatively(t *testing.T) {
	b := newBench(t, ourRequest().Obj(), ourPod().Obj())
	b.Native = unknownNative{}
	_, err := b.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
	if !errors.Is(err, errNotKnown) || len(b.calls) != 0 {
		t.Errorf("error %v, calls %v, want an error and no call", err, b.calls)
	}
}
