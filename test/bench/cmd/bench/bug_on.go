//go:build unix && benchbug

package main

// managerRole makes a build that forgot to reduce what its informers hold. The table
// must show that its goal is missed.
const managerRole = wholeRole
