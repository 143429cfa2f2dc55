// Package manager puts Drawbridge on the embedded control plane, as it runs for
// users: the chart is installed with helm, the manager acts under the chart's
// service account, and the API server calls its webhook over TLS with the CA that
// the manager injected.
//
//	inst, err := manager.Install(ctx, c, manager.InstallOptions{})
//	mgr, err := inst.Start(ctx, manager.Options{})    // in this process
//	mgr.Clock.Advance(20 * time.Minute)
//	err = mgr.Stop(ctx)
//
// StartProcess runs the built program instead, for tests that kill it and for
// the demo. Only one manager at a time gets the calls of the webhook, because
// its address stands in the webhook configuration; further ones need a
// WebhookPort of their own, and leader election.
package manager
