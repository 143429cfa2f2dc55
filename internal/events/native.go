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
		"Responder %s has not reported for 20 minutes, so the eviction goes on without it. It may have ended its work or not: look at its program.", responder)
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
