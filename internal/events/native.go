package events

// Reasons of the events of the native API.
const (
	ReasonNativeResponderPassedOver = "NativeResponderPassedOver"
	ReasonNativeEvictionFailed      = "NativeEvictionFailed"
	ReasonNativeRequestRefused      = "NativeRequestRefused"
	ReasonInterceptorsBeforeNative  = "InterceptorsBeforeNative"
)

const (
	actionEndNative = "EndNativeEviction"
	actionRefuse    = "RefuseNativeRequest"
	actionBeginOurs = "BeginInterceptors"
)

// NativeResponderPassedOver says that a native responder was silent for 20 minutes.
func NativeResponderPassedOver(responder string) Event {
	return warning(ReasonNativeResponderPassedOver, actionPassOver,
		"Responder %s has not reported for 20 minutes, so the eviction continues without it. It may have ended its work or not: look at its program.", responder)
}

// NativeEvictionFailed says that a native Eviction has ended while its pod goes on.
func NativeEvictionFailed(eviction, why string) Event {
	return warning(ReasonNativeEvictionFailed, actionEndNative, "Eviction %s has failed: %s", eviction, why)
}

// NativeRequestRefused says that a native EvictionRequest is not valid.
func NativeRequestRefused(request, why string) Event {
	return warning(ReasonNativeRequestRefused, actionRefuse, "EvictionRequest %s is not valid: %s", request, why)
}

// InterceptorsBeforeNative says that Drawbridge's interceptors run before a native Eviction.
func InterceptorsBeforeNative(pod string, responders int) Event {
	return normal(ReasonInterceptorsBeforeNative, actionBeginOurs,
		"Pod %s names %d responders, so its Eviction has no place for Drawbridge's interceptors: they run first, and the responders after them.", pod, responders)
}

// Reasons of the events about who moves native Evictions.
const (
	ReasonNativeControllersTaken    = "NativeControllersTaken"
	ReasonNativeControllersReleased = "NativeControllersReleased"
)

const actionTakeCharge = "TakeCharge"

// NativeControllersTaken says that Drawbridge moves native Evictions from now on.
func NativeControllersTaken(because string) Event {
	return normal(ReasonNativeControllersTaken, actionTakeCharge, "Drawbridge moves the Evictions of lifecycle.k8s.io. %s", because)
}

// NativeControllersReleased says that Drawbridge does not move native Evictions any more.
func NativeControllersReleased(because string) Event {
	return warning(ReasonNativeControllersReleased, actionTakeCharge,
		"Drawbridge does not move the Evictions of lifecycle.k8s.io any more, for good: somebody else does. %s To give them back to Drawbridge, switch that off and delete this ConfigMap.", because)
}
