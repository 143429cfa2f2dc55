package controllers

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Require fails if a required field is not set, naming all missing ones in alphabetical
// order. what begins the error: "controller NAME".
func Require(what string, set map[string]bool) error {
	var missing []error
	for _, field := range slices.Sorted(maps.Keys(set)) {
		if !set[field] {
			missing = append(missing, fmt.Errorf("%s is not set", field))
		}
	}
	if err := errors.Join(missing...); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
