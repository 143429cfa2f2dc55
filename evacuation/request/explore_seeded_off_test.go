//go:build !seededbug

package request

// exploredParts are what is explored: the product's own.
func exploredParts() parts { return productParts() }
