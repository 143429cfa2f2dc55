package webhook

import (
	"slices"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// nativeDecides passes calls on if all responders of a native Eviction had their turn, and there
// is no request of ours. Its plan decides, as that of a request would. A call by name for a pod
// whose name comes back makes a request: then the evictor evicts it, with the UID.
func nativeDecides(in *Input) (Decision, bool) {
	if !in.Native.Last || !in.Own && in.Call.byName() && keepsName(in.Pod) || in.isPassedBy() {
		return nothing()
	}
	return in.allowStage(translate.ReasonImperativeStage)
}

// isPassedBy reports whether an evictor of the cluster's would pass by interceptors of the pod,
// because its Eviction has no turn for them: the pod is from before it could name their responder,
// or has no place for it. Our controller asks for them, and until they are done the evictor waits.
func (in *Input) isPassedBy() bool {
	return in.Native.Theirs && !in.Native.Planned &&
		slices.ContainsFunc(in.Interceptors, func(name string) bool { return name != v1alpha1.NativeInterceptor })
}

// isEvictorsTurn reports whether an evictor of the cluster's may be who calls. It must not become a
// requester: its call would be a wish for the Eviction in whose name it calls, which nobody could
// withdraw any more. Others call again. Who is a requester stays one.
func (in *Input) isEvictorsTurn() bool {
	return in.Native.Theirs && in.Native.Last && (in.Request == nil || !slices.ContainsFunc(in.Request.Spec.Requesters, in.isEntry))
}
