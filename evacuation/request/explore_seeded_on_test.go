//go:build seededbug

package request

// exploredParts have a bug that TestEveryInterleaving must find:
// `go test -tags seededbug -run TestEveryInterleaving` shows how it is reported.
func exploredParts() parts {
	p := productParts()
	seededBugs["the evictor does not wait for the interceptors"].seed(&p)
	return p
}
