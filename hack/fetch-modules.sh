#!/usr/bin/env bash
# Downloads the modules of what the demo builds after itself, while its own build keeps the
# processors busy. What cannot be had is said by the build that needs it.
set -u
cd "$(dirname "$0")/.."
export GOWORK=off
{
	(cd test/framework/cluster/kube && go list -deps .)
	go list -modfile=go.tools.helm.mod -deps helm.sh/helm/v4/cmd/helm
	go list -deps ./cmd/drawbridge ./cmd/kubectl-drawbridge
	(cd examples/interceptor && go list -deps .)
} >/dev/null 2>&1
