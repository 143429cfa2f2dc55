package events

// Reasons of the events of EvacuationHooks.
const (
	ReasonHookBegan      = "HookBegan"
	ReasonHookSucceeded  = "HookSucceeded"
	ReasonHookFailed     = "HookFailed"
	ReasonHookUndone     = "HookUndone"
	ReasonHookUndoFailed = "HookUndoFailed"
)

const (
	actionRunHook  = "RunHook"
	actionUndoHook = "UndoHook"
)

// HookBegan says that an attempt of a hook begins. Attempt is "1 of 3".
func HookBegan(hook, pod, action, attempt string) Event {
	return normal(ReasonHookBegan, actionRunHook, "EvacuationHook %s begins its %s for pod %s, attempt %s.", hook, action, pod, attempt)
}

// HookSucceeded says that a hook is done.
func HookSucceeded(hook, pod string) Event {
	return normal(ReasonHookSucceeded, actionRunHook, "EvacuationHook %s is done for pod %s.", hook, pod)
}

// HookFailed says that an attempt has failed, and, in a sentence, what follows.
func HookFailed(hook, pod, why, next string) Event {
	return warning(ReasonHookFailed, actionRunHook, "EvacuationHook %s has failed for pod %s: %s. %s", hook, pod, why, next)
}

// HookUndone says that a hook was undone, because the eviction was canceled.
func HookUndone(hook, pod string) Event {
	return normal(ReasonHookUndone, actionUndoHook, "What EvacuationHook %s did for pod %s is undone: the eviction was canceled.", hook, pod)
}

// HookUndoFailed says that the undo has failed. It is not repeated.
func HookUndoFailed(hook, pod, why string) Event {
	return warning(ReasonHookUndoFailed, actionUndoHook, "What EvacuationHook %s did for pod %s could not be undone: %s. Undo it by hand.", hook, pod, why)
}
