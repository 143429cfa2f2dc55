package certs

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"maps"
	"regexp"
	"strings"
	"time"
)

// Keys of the Secret's data about the token by which we know API servers. It is the last
// segment of the paths in the webhook configuration.
const (
	// keyToken has the token.
	keyToken = "webhook-token"
	// keyTokenBefore has the previous token while API servers still use it. It is present
	// and empty while they still call without one.
	keyTokenBefore = "webhook-token-previous" //nolint:gosec // The name of a key, no credential.
	// keyTokenCreated has the time at which the token was made, in RFC 3339.
	keyTokenCreated = "webhook-token-created" //nolint:gosec // The name of a key, no credential.
)

// tokenBytes is the entropy of a token. It is spelt in hexadecimal digits: a path in the
// webhook configuration of a Service takes DNS labels only.
const tokenBytes = 32

var tokenFormat = regexp.MustCompile("^[0-9a-f]{64}$")

// newToken returns a token that cannot be guessed.
func newToken() string {
	token := make([]byte, tokenBytes)
	// It never fails (crypto/rand: Read).
	_, _ = rand.Read(token)
	return hex.EncodeToString(token)
}

// tokens are the tokens of the Secret.
type tokens struct {
	// current is the token; empty if there is none.
	current string
	// before is the previous token, which is valid while hasBefore is true; empty stands
	// for calls without a token.
	before    string
	hasBefore bool
	created   time.Time
}

func readTokens(data map[string][]byte) tokens {
	t := tokens{current: string(data[keyToken])}
	if !tokenFormat.MatchString(t.current) {
		return tokens{}
	}
	before, ok := data[keyTokenBefore]
	t.before, t.hasBefore = string(before), ok
	if created, err := time.Parse(time.RFC3339, string(data[keyTokenCreated])); err == nil {
		t.created = created
	}
	return t
}

// probeSegment ends the path of the webhook that proves that we are reached. Its failure
// policy is Fail: if we are not reached, callers see an error with its path. So it has its
// own token, which is valid for nothing else.
const probeSegment = "/probe"

// in returns the tokens for a path.
func (t tokens) in(base string) tokens {
	if strings.HasSuffix(base, probeSegment) {
		t.current, t.before = ofProbe(t.current), ofProbe(t.before)
	}
	return t
}

// ofProbe is the token of the probe; empty if there is none.
func ofProbe(token string) string {
	if token == "" {
		return ""
	}
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write([]byte(probeSegment))
	return hex.EncodeToString(mac.Sum(nil))
}

// accepts reports whether a call with the token given, empty for none, is an API server's.
// It takes constant time.
func (t tokens) accepts(given string) bool {
	good := equal(given, t.current)
	if t.hasBefore {
		good = equal(given, t.before) || good
	}
	return good
}

func equal(a, b string) bool {
	// Hashes are of one length.
	hashA, hashB := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(hashA[:], hashB[:]) == 1
}

// splitToken splits the token off a path or a URL of the webhook configuration.
func splitToken(path string) (base, token string) {
	i := strings.LastIndexByte(path, '/')
	if i < 0 || !tokenFormat.MatchString(path[i+1:]) {
		return path, ""
	}
	return path[:i], path[i+1:]
}

// tokenInput is the input of decideToken.
type tokenInput struct {
	// Data of the Secret.
	Data map[string][]byte
	// Called: API servers have an authority to trust, so they call us.
	Called bool
	// InPaths are the tokens in the webhook configuration, one of each webhook; empty for
	// none. There are none at all without a configuration.
	InPaths []string
	// Marked: the configuration says that tokens may be put into it. That of an older
	// chart does not, and an older manager does not know the paths.
	Marked bool
	// Ready: all replicas support tokens.
	Ready bool
	// CurrentSince is since when the configuration has only the current token; zero if it
	// has not.
	CurrentSince time.Time
	Now          time.Time
	Settle       time.Duration
}

// tokenPlan is the result of decideToken.
type tokenPlan struct {
	// Make: create a new token. Before stays valid beside it, if KeepBefore.
	Make       bool
	Before     string
	KeepBefore bool
	// Drop: the previous one is no longer valid.
	Drop bool
	// Put: put the token into the paths.
	Put bool
	// Again is when to check again, if nothing changes; zero for never.
	Again time.Time
}

// unreadyPause is how soon to check again for replicas that do not support tokens.
const unreadyPause = 10 * time.Second

// decideToken decides about the token. At all times, every replica knows what API servers
// send:
//
//	new token in the Secret --settle--> in the paths --settle--> the one before is dropped
//
// A new one is created if there is none, and after the certificate was renewed. While a
// replica runs that does not support tokens, the paths have none, so calls without a token
// are accepted.
func decideToken(in tokenInput) tokenPlan {
	now := readTokens(in.Data)
	if now.current == "" {
		p := tokenPlan{Make: true, KeepBefore: in.Called || !in.Ready}
		if len(in.InPaths) > 0 {
			p.Before = in.InPaths[0]
		}
		return p
	}
	cert, err := readCertificate(in.Data[keyCert])
	if err == nil && !now.hasBefore && now.created.Before(cert.NotBefore) {
		return tokenPlan{Make: true, Before: now.current, KeepBefore: true}
	}
	stale, learning := false, false
	for _, token := range in.InPaths {
		stale = stale || token != now.current
		// Callers with the previous one are accepted; the new one must be known first.
		learning = learning || token != now.current && token != "" && now.hasBefore && token == now.before
	}
	switch {
	case len(in.InPaths) == 0 || !in.Marked:
		return tokenPlan{}
	case stale && !in.Ready:
		return tokenPlan{Again: in.Now.Add(unreadyPause)}
	case stale:
		if settled := now.created.Add(in.Settle); learning && in.Now.Before(settled) {
			return tokenPlan{Again: settled}
		}
		return tokenPlan{Put: true}
	case now.hasBefore && !in.CurrentSince.IsZero():
		if settled := in.CurrentSince.Add(in.Settle); in.Now.Before(settled) {
			return tokenPlan{Again: settled}
		}
		return tokenPlan{Drop: true}
	default:
		return tokenPlan{}
	}
}

// carryToken returns the Secret's data after the plan. The data given is not changed.
func carryToken(p tokenPlan, data map[string][]byte, now time.Time) map[string][]byte {
	next := maps.Clone(data)
	if next == nil {
		next = map[string][]byte{}
	}
	if p.Make {
		next[keyToken], next[keyTokenCreated] = []byte(newToken()), []byte(now.UTC().Format(time.RFC3339))
		delete(next, keyTokenBefore)
		if p.KeepBefore {
			next[keyTokenBefore] = []byte(p.Before)
		}
	}
	if p.Drop {
		delete(next, keyTokenBefore)
	}
	return next
}
