package httpcall

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// maxURL is the length of a URL, in bytes: a Location is kept in a status.
const maxURL = 2048

// allowed is what every refusal of a URL ends with.
const allowed = "allowed are https, and http to the pod's own IP or to a Service of the hook's namespace (NAME, NAME.NAMESPACE or NAME.NAMESPACE.svc)"

// target is a URL that may be asked as far as can be said without looking anything up.
type target struct {
	url *url.URL
	// host is that of the URL in lower case, without a final dot.
	host string
	port uint16
	// addr is the host if that is an address.
	addr netip.Addr
	// labels of the host if that is a name.
	labels []string
	// service is the name of a Service of the namespace, if the host names one.
	service string
}

// CheckURL says why a literal URL is refused, whoever asks it. It looks nothing up: a URL
// that passes may still be refused for what its host resolves to, and http for the
// namespace or the pod. The error is a *RefusedError.
func CheckURL(literal string) error {
	_, err := inspect(literal, nil)
	return err
}

// everywhere is all addresses: whether one may be asked is not the question.
var everywhere = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}

// SameOrigin reports whether two URLs have the same scheme, host and port. Headers with
// credentials that are for one are not for the other if they have not.
func SameOrigin(a, b string) bool {
	ta, errA := inspect(a, everywhere)
	tb, errB := inspect(b, everywhere)
	return errA == nil && errB == nil && ta.url.Scheme == tb.url.Scheme && ta.host == tb.host && ta.port == tb.port
}

func refuse(format string, args ...any) error {
	return &RefusedError{Reason: fmt.Sprintf(format, args...) + ": " + allowed}
}

// inspect checks a URL as far as it says something by itself. The reasons never repeat
// all of it: it may have a password or a token in it. Addresses in allow are not refused.
func inspect(literal string, allow []netip.Prefix) (target, error) {
	if len(literal) > maxURL {
		return target{}, refuse("the URL has more than %d bytes", maxURL)
	}
	u, err := url.Parse(literal)
	if err != nil {
		return target{}, refuse("the URL is malformed")
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return target{}, refuse("the scheme of the URL is %q", u.Scheme)
	case u.Opaque != "" || u.Hostname() == "":
		return target{}, refuse("the URL has no host")
	case u.User != nil:
		return target{}, refuse("the URL has a user, which belongs into a header")
	}
	port, err := portOf(u)
	if err != nil {
		return target{}, err
	}
	t := target{url: u, port: port, host: strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")}
	u.Fragment, u.RawFragment = "", ""
	if addr, err := netip.ParseAddr(t.host); err == nil {
		t.addr = addr.Unmap()
		if why := refused(addr, nil); why != "" && !allows(allow, t.addr) {
			return target{}, refuse("the address %s is %s", t.host, why)
		}
		return t, nil
	}
	t.labels = strings.Split(t.host, ".")
	return t, t.checkName()
}

// portOf returns the port of a URL.
func portOf(u *url.URL) (uint16, error) {
	switch {
	case u.Port() != "":
		port, err := strconv.ParseUint(u.Port(), 10, 16)
		if err != nil || port == 0 {
			return 0, refuse("the port of the URL is %q", u.Port())
		}
		return uint16(port), nil
	case u.Scheme == "https":
		return 443, nil
	default:
		return 80, nil
	}
}

// checkName checks a host that is not an address.
func (t *target) checkName() error {
	for _, label := range t.labels {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return refuse("the host of the URL is no DNS name and no address")
		}
	}
	last := t.labels[len(t.labels)-1]
	// 2130706433, 0x7f.1 and 0177.0.0.1 are addresses to some resolvers. No name of the
	// DNS ends like that.
	if isNumber(last) {
		return refuse("the host %s is a number and no address as it is usually written", t.host)
	}
	if last == "localhost" {
		return refuse("the host %s is of loopback", t.host)
	}
	if t.serviceOf("default") == "kubernetes" && len(t.labels) > 1 {
		return refuse("the host %s is the API server", t.host)
	}
	if t.url.Scheme == "http" && len(t.labels) > 2 && t.labels[2] != "svc" {
		return refuse("http to %s", t.host)
	}
	return nil
}

// isNumber reports whether a label is decimal, octal or hexadecimal.
func isNumber(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

// serviceOf returns the name of the Service of this namespace that the host is, "" if it
// is something else. The cluster's domain is not known, so any is one.
func (t *target) serviceOf(namespace string) string {
	switch l := t.labels; {
	case len(l) == 1,
		len(l) == 2 && l[1] == namespace,
		len(l) > 2 && l[1] == namespace && l[2] == "svc":
		return l[0]
	default:
		return ""
	}
}

// inCluster reports whether the host is a name that the cluster's DNS gives to a Service
// or a pod: NAME.NAMESPACE.svc, POD.NAME.NAMESPACE.svc and 10-0-0-1.NAMESPACE.pod.
func (t *target) inCluster() bool {
	l := t.labels
	switch {
	case len(l) > 2 && l[2] == "svc", len(l) > 3 && l[3] == "svc":
		return true
	case len(l) > 2 && l[2] == "pod":
		_, four := netip.ParseAddr(strings.ReplaceAll(l[0], "-", "."))
		_, six := netip.ParseAddr(strings.ReplaceAll(l[0], "-", ":"))
		return four == nil || six == nil
	default:
		return strings.HasSuffix(t.host, ".cluster.local")
	}
}

// inspectFor checks a URL for somebody in a namespace, and finds out whether it is a
// Service. It looks nothing up.
func inspectFor(literal, namespace string, podIPs []netip.Addr, allow []netip.Prefix) (target, error) {
	t, err := inspect(literal, allow)
	if err != nil {
		return target{}, err
	}
	if t.addr.IsValid() {
		if t.url.Scheme == "http" && !slices.Contains(podIPs, t.addr) {
			return target{}, refuse("http to %s, which is not the pod's own IP", t.host)
		}
		return t, nil
	}
	t.service = t.serviceOf(namespace)
	switch {
	case t.service != "":
		if t.service == "kubernetes" && namespace == "default" {
			return target{}, refuse("the host %s is the API server", t.host)
		}
	case t.inCluster():
		return target{}, refuse("the host %s is in the cluster, but no Service of namespace %s", t.host, namespace)
	case t.url.Scheme == "http":
		return target{}, refuse("http to %s, which is no Service of namespace %s", t.host, namespace)
	}
	return t, nil
}
