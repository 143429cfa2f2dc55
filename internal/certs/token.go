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
	// keyTokenBefore has the one before while API servers still use it. It is there and
	// empty when they still call without one.
	keyTokenBefore = "webhook-token-previous" //nolint:gosec // The name of a key, no credential.
	// keyTokenCreated has the time at which the token was made, in RFC 3339.
	keyTokenCreated = "webhook-token-created" //nolint:gosec // The name of a key, no credential.
)

// tokenBytes is the entropy of a token. It is spelt in hexadecimal digits: a path in the
// webhook configuration of a Service takes DNS labels only.
const tokenBytes = 32

var tokenFormat = regexp.MustCompile("^[0-9a-f]{64}$")

// newToken returns a token that nobody guesses.
func newToken() string {
	token := make([]byte, tokenBytes)
	// It never fails (crypto/rand: Read).
	_, _ = rand.Read(token)
	return hex.EncodeToString(token)
}

// tokens are what the Secret says.
type tokens struct {
	// current is the token; empty if there is none.
	current string
	// before is the one of before, which counts while hasBefore is true; empty stands
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
// policy is Fail: when we are not reached, the error that callers see has its path. So it
// gets a token of its own, which opens nothing else.
const probeSegment = "/probe"

// in returns the tokens as they are behind a path.
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

// accepts reports whether a call with the token given, empty for none, is an API
// server's. Nothing is learnt from the time this takes.
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

// splitToken takes the token off a path or a URL of the webhook configuration.
func splitToken(path string) (base, token string) {
	i := strings.LastIndexByte(path, '/')
	if i < 0 || !tokenFormat.MatchString(path[i+1:]) {
		return path, ""
	}
	return path[:i], path[i+1:]
}

// tokenInput is what decideToken may look at.
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
	// Ready: all replicas know of tokens.
	Ready bool
	// CurrentSince is since when the configuration was seen with nothing but the present
	// token; zero if it is not so.
	CurrentSince time.Time
	Now          time.Time
	Settle       time.Duration
}

// tokenPlan is what decideToken wants.
type tokenPlan struct {
	// Make: a new token is to be made. Before is what stays valid beside it, if KeepBefore.
	Make       bool
	Before     string
	KeepBefore bool
	// Drop: the one of before is not valid any more.
	Drop bool
	// Put: the token is to be put into the paths.
	Put bool
	// Again is when to look again, if nothing changes; zero for no time of its own.
	Again time.Time
}

// unreadyPause is how soon to look again for replicas that know of no tokens.
const unreadyPause = 10 * time.Second

// decideToken says what becomes of the token. At every moment, what API servers send is
// known to every replica:
//
//	new token in the Secret --settle--> in the paths --settle--> the one before is dropped
//
// A new one is made when there is none, and after the certificate was renewed. As long as
// a replica runs that knows of no tokens, the paths have none, so calls without count.
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
		// Whoever sends the one of before is answered; the new one must be known first.
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
