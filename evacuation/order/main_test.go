package order

import (
	"testing"

	"go.uber.org/goleak"
)

// Nothing that a test starts may outlive it.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
