package translate

import (
	"strings"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// Suffixes of the names that we give to callers.
const (
	userSuffix           = ".users.drawbridge.dev"
	serviceAccountSuffix = ".serviceaccounts.drawbridge.dev"
	serviceAccountPrefix = "system:serviceaccount:"
)

// FieldManagerPrefix begins the field manager of a legacy requester's entry.
// Each has its own, so that entries come and go independently (statement 21).
const FieldManagerPrefix = "drawbridge-requester-"

// CopiesLabels reports whether the labels that a field manager applies to a request are
// those of its pod (ruling R7): the managers of legacy requesters' entries, and those of
// Drawbridge's own requesters, which have their names below its domain.
func CopiesLabels(fieldManager string) bool {
	return strings.HasPrefix(fieldManager, FieldManagerPrefix) || strings.HasSuffix(fieldManager, "."+v1alpha1.GroupName)
}

// hashDigits is the length of the hash that keeps sanitised names apart.
const hashDigits = 8

// RequesterName is the requester name of a user in spec.requesters. It depends only on
// the username, so that the same user keeps its entry with any tool: "alice" is
// alice.users.drawbridge.dev and "system:serviceaccount:ns:name" is
// name.ns.serviceaccounts.drawbridge.dev. Parts that are not DNS labels are sanitised
// and get a hash of the whole username. The result always satisfies IsFQDN.
func RequesterName(username string) string {
	if namespace, name, ok := serviceAccount(username); ok {
		return labelFor(name, username) + "." + labelFor(namespace, username) + serviceAccountSuffix
	}
	return labelFor(username, username) + userSuffix
}

// labelFor returns part if it is a DNS label, else a readable label with a hash
// of the whole username.
func labelFor(part, username string) string {
	if isLabel(part) && !looksHashed(part) {
		return part
	}
	label := sanitize(part, maxLabel-1-hashDigits)
	if label == "" {
		label = "x"
	}
	return label + "-" + shortHash(hashDigits, username)
}

// looksHashed reports whether a clean label ends like one with a hash. Such a label
// gets a hash as well; otherwise a user could have the sanitised name of another one,
// and share its entry.
func looksHashed(label string) bool {
	if len(label) < hashDigits+2 || label[len(label)-hashDigits-1] != '-' {
		return false
	}
	for _, c := range []byte(label[len(label)-hashDigits:]) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// serviceAccount splits the username of a service account.
func serviceAccount(username string) (namespace, name string, ok bool) {
	rest, ok := strings.CutPrefix(username, serviceAccountPrefix)
	if !ok {
		return "", "", false
	}
	namespace, name, ok = strings.Cut(rest, ":")
	if !ok || namespace == "" || name == "" || strings.Contains(name, ":") {
		return "", "", false
	}
	return namespace, name, true
}
