package execcall

import (
	"testing"

	"go.uber.org/goleak"
)

// Nothing that a test starts may outlive it, but for the heartbeat of client-go, which
// finds out at its next beat (5s) that the connection is gone.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("k8s.io/client-go/tools/remotecommand.(*heartbeat).start"))
}
