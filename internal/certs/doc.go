// Package certs keeps the certificate of our admission webhooks: a self-signed
// authority and a server certificate in one Secret of our namespace, renewed in time.
// The authority's certificate is injected into the ValidatingWebhookConfiguration.
//
// The Rotator runs on the leader and is the only writer. The Server runs on
// every replica and serves what the Secret holds: there are no files, so a
// read-only root filesystem and a changed Secret need no restart.
//
// Keys and certificates come from open-policy-agent/cert-controller. Its own
// rotation loop is not used, because it ends the manager unless the Secret is
// mounted as files, caches every Secret of the namespace, needs the Secret to
// exist beforehand, and replaces the authority and the certificate in one step,
// so that calls fail until every API server has seen the new one.
package certs
