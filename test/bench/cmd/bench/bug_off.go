//go:build unix && !benchbug

package main

// managerRole is the part of this program that is measured as the manager; the built
// manager if empty. See bug_on.go.
const managerRole = ""
