package app

import "github.com/spf13/pflag"

// BudgetOptions configure EvictionBudgets.
type BudgetOptions struct {
	// Enabled enforces them.
	Enabled bool
}

func defaultBudgetOptions() BudgetOptions { return BudgetOptions{Enabled: true} }

// addFlags adds the flags to fs. Their defaults are the current values.
func (o *BudgetOptions) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.Enabled, "budgets", o.Enabled, "Enforce EvictionBudgets.")
}
