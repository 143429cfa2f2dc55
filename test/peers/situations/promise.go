//go:build unix

package situations

import (
	"fmt"

	"github.com/drawbridge-dev/drawbridge/test/peers/records"
)

// broken says which promise of Drawbridge a result breaks, whatever the program is; empty if none.
func broken(s situation, r *records.Result) string {
	switch {
	case s.needs > 0 && r.Evicted > 0 && !r.Prepared:
		return "the pod was evicted before its interceptor was done"
	case r.Evicted > 1:
		return fmt.Sprintf("%d pods of that name were evicted in one drain", r.Evicted)
	case r.Canceled && s.middle == nil:
		return "the interceptor was canceled, and nobody had called the drain off"
	case s.with == stays && r.Evicted > 0:
		return "the pod was evicted past its budget"
	}
	return ""
}
