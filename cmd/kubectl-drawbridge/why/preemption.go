package why

import "github.com/drawbridge-dev/drawbridge/pdb/preemption"

// preemptions reports which preemptors may violate the pod's budgets (KEP-3280).
func preemptions(c *podCase) []string {
	if c.Pod == nil {
		return nil
	}
	return preemption.Explain(preemption.Explanation{Pod: c.Pod, Class: c.Class, Budgets: c.Budgets})
}
