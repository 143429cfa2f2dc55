// Package request is the controller that activates the interceptors of a pod in order.
//
// It gathers what it needs, lets a pure function decide and applies the decision. The
// sequence itself is decided in evacuation/process; the adapter in this package
// translates between the two.
package request
