package app

import "github.com/spf13/pflag"

// BudgetOptions configure EvictionBudgets.
type BudgetOptions struct {
	// Enabled enforces them.
	Enabled bool
	// Exhausted lets pods be deleted that a PodDisruptionBudget can never let go, where their
	// EvictionBudgets say so.
	Exhausted bool
}

func defaultBudgetOptions() BudgetOptions { return BudgetOptions{Enabled: true} }

// addFlags adds the flags to fs. Their defaults are the current values.
func (o *BudgetOptions) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.Enabled, "budgets", o.Enabled, "Enforce EvictionBudgets.")
	fs.BoolVar(&o.Exhausted, "budgets-exhausted", o.Exhausted, "Delete pods that a PodDisruptionBudget can never let go, where an EvictionBudget says so (spec.exhausted). Needs the permission to delete pods.")
}
