package translate

import (
	"strings"
	"time"
	"unicode"
)

// CallerClass is the kind of tool that calls. It is a closed set, fit for metric
// labels, and only a hint: callers can claim to be another tool.
type CallerClass string

// The classes of callers (callers.md, section 12).
const (
	ClassKubectl           CallerClass = "kubectl"
	ClassDrainHelper       CallerClass = "drain-helper"
	ClassKarpenter         CallerClass = "karpenter"
	ClassClusterAPI        CallerClass = "cluster-api"
	ClassClusterAutoscaler CallerClass = "cluster-autoscaler"
	ClassMCO               CallerClass = "mco"
	ClassGardener          CallerClass = "gardener"
	ClassManagedUpgrade    CallerClass = "managed-upgrade"
	ClassDescheduler       CallerClass = "descheduler"
	ClassUnknown           CallerClass = "unknown"
)

// classRule is what the class of a caller decides.
type classRule struct {
	// ttl is how long the caller may be silent: several times its longest normal pause.
	ttl time.Duration
	// ignoresMarkers: markers that go away do not withdraw the request.
	ignoresMarkers bool
	// heldByDeletion: silence means nothing while the node is being deleted.
	heldByDeletion bool
	// loopGap is the longest normal pause between two calls of one loop over the same
	// pods: several times the usual one. Longer pauses are between loops, and each loop
	// lists the pods of its node again. Zero: it calls once.
	loopGap time.Duration
}

// classRules is the table of callers.md, section 12.
var classRules = map[CallerClass]classRule{
	ClassKubectl:     {ttl: 2 * time.Minute, loopGap: 30 * time.Second},
	ClassDrainHelper: {ttl: 2 * time.Minute, loopGap: 30 * time.Second},
	// Karpenter never cancels the deletion of a node.
	ClassKarpenter:  {ttl: 2 * time.Minute, heldByDeletion: true, loopGap: time.Minute},
	ClassClusterAPI: {ttl: 3 * time.Minute, loopGap: time.Minute},
	// It drops its taint after two minutes and comes back later; canceling then would
	// restart a long migration over and over.
	ClassClusterAutoscaler: {ttl: 15 * time.Minute, ignoresMarkers: true, loopGap: 30 * time.Second},
	ClassMCO:               {ttl: 10 * time.Minute, loopGap: 30 * time.Second},
	ClassGardener:          {ttl: 15 * time.Minute, loopGap: time.Minute},
	ClassManagedUpgrade:    {ttl: 5 * time.Minute, loopGap: 30 * time.Second},
	// It calls once and assumes the rest, and it marks no node.
	ClassDescheduler: {ttl: time.Hour, ignoresMarkers: true},
	ClassUnknown:     {ttl: 10 * time.Minute, loopGap: time.Minute},
}

// rule returns the class's rule; unknown classes count as ClassUnknown.
func (c CallerClass) rule() classRule {
	if r, ok := classRules[c]; ok {
		return r
	}
	return classRules[ClassUnknown]
}

// LoopGap is the longest normal pause between two calls of one loop over the same pods,
// zero if callers of the class ask once.
func (c CallerClass) LoopGap() time.Duration { return c.rule().loopGap }

// CallerClasses are all classes. Metrics and their reference have them in this order.
func CallerClasses() []CallerClass {
	return []CallerClass{
		ClassKubectl, ClassDrainHelper, ClassKarpenter, ClassClusterAPI, ClassClusterAutoscaler, ClassMCO, ClassGardener,
		ClassManagedUpgrade, ClassDescheduler, ClassUnknown,
	}
}

// known returns c, or ClassUnknown if it is not of the closed set.
func (c CallerClass) known() CallerClass {
	if _, ok := classRules[c]; ok {
		return c
	}
	return ClassUnknown
}

// CallerInput is what an eviction call says about its caller.
type CallerInput struct {
	// Username and Extra are the authenticated user.
	Username string
	Extra    map[string][]string
	// Manager is the field manager of the Eviction, which is the first part of the
	// User-Agent. Empty when the caller sent neither options nor annotations.
	Manager string
	// Annotations of the Eviction.
	Annotations map[string]string
}

// Caller is a caller of pods/eviction, as the rest of Drawbridge sees it.
type Caller struct {
	// Requester is the name in spec.requesters, always a valid FQDN.
	Requester string
	// Display names the caller for people, at most 128 characters, for example
	// "kubectl (alice)".
	Display string
	// Class is the kind of tool.
	Class CallerClass
	// TTL is how long after its last call the caller still counts as interested.
	TTL time.Duration
	// MarkersCancel: the removal of the node's drain markers withdraws the request.
	MarkersCancel bool
}

// Facts of the callers (callers.md, sections 1, 6 and 12).
const (
	podNameExtra          = "authentication.kubernetes.io/pod-name"
	requestedByAnnotation = "requested-by"
	maxDisplay            = 128
	maxTool               = 40
)

// Recognize identifies the caller and how long it may be silent. Everything but the
// username is a hint that the caller could forge; it decides only the class.
func Recognize(in CallerInput) Caller {
	class := classify(in)
	rule := class.rule()
	return Caller{
		Requester:     RequesterName(in.Username),
		Display:       display(in, class),
		Class:         class,
		TTL:           rule.ttl,
		MarkersCancel: !rule.ignoresMarkers,
	}
}

// recognition is one way to know a class. The first that matches wins.
type recognition struct {
	class   CallerClass
	matches func(in CallerInput, account string) bool
}

// recognitions in the order of their certainty.
var recognitions = []recognition{
	// The descheduler signs the Eviction itself.
	{ClassDescheduler, func(in CallerInput, account string) bool {
		return strings.Contains(in.Annotations[requestedByAnnotation], "descheduler") || names(in.Manager, account, "descheduler")
	}},
	{ClassKarpenter, func(in CallerInput, account string) bool {
		return names(in.Manager, account, "karpenter")
	}},
	{ClassClusterAutoscaler, func(in CallerInput, account string) bool {
		return names(in.Manager, account, "cluster-autoscaler")
	}},
	{ClassMCO, func(in CallerInput, account string) bool {
		return names(in.Manager, account, "machine-config-controller", "machine-config-daemon", "machine-config-operator")
	}},
	{ClassGardener, func(in CallerInput, account string) bool {
		return names(in.Manager, account, "machine-controller-manager", "gardener")
	}},
	{ClassClusterAPI, func(in CallerInput, account string) bool {
		// In a workload cluster it is whom its kubeconfig is for, and calls itself as its program is called
		// (seen with the real one).
		return names(in.Manager, account, "cluster-api", "capi-controller-manager", "capi-manager") ||
			in.Manager == "manager" && in.Username == "kubernetes-admin"
	}},
	{ClassDrainHelper, func(in CallerInput, account string) bool {
		return names(in.Manager, account, "node-maintenance-operator", "kured", "aws-node-termination-handler",
			"node-termination-handler", "sriov-network", "draino", "system-upgrade")
	}},
	// Upgrades by the provider use names that only the provider has.
	{ClassManagedUpgrade, func(in CallerInput, _ string) bool {
		user := in.Username
		return strings.HasPrefix(user, "eks:") || strings.HasPrefix(user, "system:gke-") || user == "aksService"
	}},
	// kubectl in a pod is automation, not an interactive user.
	{ClassDrainHelper, func(in CallerInput, account string) bool {
		return strings.HasPrefix(in.Manager, "kubectl") && (account != "" || first(in.Extra[podNameExtra]) != "")
	}},
	{ClassKubectl, func(in CallerInput, _ string) bool {
		return strings.HasPrefix(in.Manager, "kubectl")
	}},
	// Nothing is known about other service accounts, not even how often they call.
}

func classify(in CallerInput) CallerClass {
	account := ""
	if _, name, ok := serviceAccount(in.Username); ok {
		account = name
	} else if strings.HasPrefix(in.Username, "system:") {
		// Static control plane components carry their name in the certificate.
		account = in.Username
	}
	for _, r := range recognitions {
		if r.matches(in, account) {
			return r.class
		}
	}
	return ClassUnknown
}

// names reports whether the manager begins with one of the words, or the account
// contains one (charts put their release name around it).
func names(manager, account string, words ...string) bool {
	for _, w := range words {
		if strings.HasPrefix(manager, w) || strings.Contains(account, w) {
			return true
		}
	}
	return false
}

// display is "tool (user)". The tool is the caller's name for itself.
func display(in CallerInput, class CallerClass) string {
	tool := in.Manager
	if tool == "" && class != ClassUnknown {
		tool = string(class)
	}
	user := in.Username
	if namespace, name, ok := serviceAccount(user); ok {
		user = namespace + "/" + name
	}
	if user = printable(user); user == "" {
		user = "nobody"
	}
	tool = shorten(printable(tool), maxTool)
	if tool == "" {
		return shorten(user, maxDisplay)
	}
	return tool + " (" + shorten(user, maxDisplay-len([]rune(tool))-3) + ")"
}

// printable drops what could break a line of a log or a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) && r != unicode.ReplacementChar {
			return r
		}
		return -1
	}, strings.TrimSpace(s))
}

func first(s []string) string {
	if len(s) == 0 {
		return ""
	}
	return s[0]
}
