package httpcall

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// reasonOf returns what a refusal says before what is allowed, "" without an error.
func reasonOf(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		return ""
	}
	var refusal *RefusedError
	if !errors.As(err, &refusal) {
		t.Fatalf("%v is not a *RefusedError", err)
	}
	reason, _, found := strings.Cut(refusal.Reason, ": "+allowed)
	if !found {
		t.Errorf("%q does not say what is allowed", refusal.Reason)
	}
	return reason
}

func TestCheckURL(t *testing.T) {
	number := func(host string) string {
		return "the host " + host + " is a number and no address as it is usually written"
	}
	cases := map[string]struct{ url, want string }{
		"https to any host":                      {"https://Hooks.Example.com:8443/a?b=c", ""},
		"https to a host with a final dot":       {"https://hooks.example.com./", ""},
		"https to an address":                    {"https://10.0.0.1/", ""},
		"https to an address of IPv6":            {"https://[2001:db8::1]:8443/", ""},
		"http to what may be the pod":            {"http://10.0.0.1:8080/", ""},
		"http to what may be a Service":          {"http://db:8080/", ""},
		"http to what may be NAME.NAMESPACE":     {"http://db.shop/", ""},
		"http to a Service":                      {"http://db.shop.svc/", ""},
		"http to a Service with a domain":        {"http://db.shop.svc.corp.internal/", ""},
		"http to a host that is no Service":      {"http://hooks.example.com/", "http to hooks.example.com"},
		"another scheme":                         {"ftp://example.com/", `the scheme of the URL is "ftp"`},
		"no scheme":                              {"example.com", `the scheme of the URL is ""`},
		"no host":                                {"https:///a", "the URL has no host"},
		"opaque":                                 {"https:example.com", "the URL has no host"},
		"a user":                                 {"https://a:b@example.com/", "the URL has a user, which belongs into a header"},
		"a user that looks like the host":        {"https://example.com@127.0.0.1/", "the URL has a user, which belongs into a header"},
		"a backslash":                            {`https://example.com\@127.0.0.1/`, "the URL is malformed"},
		"a line break":                           {"https://example.com/\r\nX: y", "the URL is malformed"},
		"a port that is none":                    {"https://example.com:70000/", `the port of the URL is "70000"`},
		"port 0":                                 {"https://example.com:0/", `the port of the URL is "0"`},
		"too long":                               {"https://example.com/" + strings.Repeat("a", maxURL), "the URL has more than 2048 bytes"},
		"loopback":                               {"https://127.0.0.1/", "the address 127.0.0.1 is of loopback"},
		"all of loopback":                        {"https://127.8.9.10/", "the address 127.8.9.10 is of loopback"},
		"loopback of IPv6":                       {"https://[::1]/", "the address ::1 is of loopback"},
		"loopback mapped to IPv6":                {"https://[::ffff:127.0.0.1]/", "the address ::ffff:127.0.0.1 is of loopback"},
		"loopback mapped to IPv6 in hexadecimal": {"https://[::ffff:7f00:1]/", "the address ::ffff:7f00:1 is of loopback"},
		"unspecified":                            {"http://0.0.0.0/", "the address 0.0.0.0 is unspecified"},
		"unspecified in IPv6":                    {"http://[::]/", "the address :: is unspecified"},
		"the metadata address":                   {"https://169.254.169.254/latest", "the address 169.254.169.254 is link-local"},
		"the metadata address by NAT64":          {"https://[64:ff9b::a9fe:a9fe]/", "the address 64:ff9b::a9fe:a9fe is link-local"},
		"the metadata address of IPv6":           {"https://[fd00:ec2::254]/", "the address fd00:ec2::254 is of a cloud's metadata service"},
		"a zone":                                 {"https://[fe80::1%25eth0]/", "the address fe80::1%eth0 is link-local"},
		"localhost":                              {"https://LocalHost/", "the host localhost is of loopback"},
		"localhost with a final dot":             {"https://localhost.:1/", "the host localhost is of loopback"},
		"below localhost":                        {"https://a.localhost/", "the host a.localhost is of loopback"},
		"a decimal number":                       {"http://2130706433/", number("2130706433")},
		"a hexadecimal number":                   {"http://0x7f000001/", number("0x7f000001")},
		"a part in hexadecimal":                  {"http://0x7f.1/", number("0x7f.1")},
		"octal parts":                            {"http://0177.0.0.1/", number("0177.0.0.1")},
		"few parts":                              {"http://127.1/", number("127.1")},
		"zeros before it":                        {"http://127.000.000.001/", number("127.000.000.001")},
		"a number too large for a part":          {"https://1.1.1.256/", number("1.1.1.256")},
		"digits of another script":               {"https://１２７.0.0.1/", "the host of the URL is no DNS name and no address"},
		"dots of another script":                 {"https://127。0。0。1/", "the host of the URL is no DNS name and no address"},
		"escapes":                                {"https://127%2e0.0.1/", "the URL is malformed"},
		"no label":                               {"https://a..b/", "the host of the URL is no DNS name and no address"},
		"two final dots":                         {"https://127.0.0.1../", "the host of the URL is no DNS name and no address"},
		"the API server":                         {"https://kubernetes.default/", "the host kubernetes.default is the API server"},
		"the API server with a domain":           {"https://KUBERNETES.default.svc.cluster.local/", "the host kubernetes.default.svc.cluster.local is the API server"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, reasonOf(t, CheckURL(tc.url))); diff != "" {
				t.Errorf("reason (-want +got):\n%s", diff)
			}
		})
	}
}

// A reason is shown to all who read the hook; what is refused may have a secret in it.
func TestRefusalRepeatsNoSecret(t *testing.T) {
	for _, url := range []string{"https://a:hunter2@example.com/", "https://example.com:hunter2/", "http://hooks.example.com/?t=hunter2", "https://exa mple.com/?t=hunter2"} {
		err := CheckURL(url)
		if err == nil {
			t.Errorf("%s is not refused", url)
		} else if strings.Contains(err.Error(), "t=hunter2") || strings.Contains(err.Error(), "a:hunter2") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestWhichHostsANamespaceMayAsk(t *testing.T) {
	cases := map[string]struct {
		url, namespace string
		wantService    string
		want           string
	}{
		"http to the pod":                           {url: "http://10.1.2.3:8080/"},
		"http to the pod by IPv6":                   {url: "http://[fd00::1]:8080/"},
		"http to the pod by IPv6, written longer":   {url: "http://[fd00:0:0::1]:8080/"},
		"http to another pod":                       {url: "http://10.1.2.4/", want: "http to 10.1.2.4, which is not the pod's own IP"},
		"https to an address":                       {url: "https://10.1.2.4/"},
		"a bare name is a Service":                  {url: "http://db/", wantService: "db"},
		"a bare name with https is a Service":       {url: "https://db/", wantService: "db"},
		"NAME.NAMESPACE is a Service":               {url: "https://db.shop/", wantService: "db"},
		"so is NAME.NAMESPACE.svc":                  {url: "http://DB.shop.SVC./", wantService: "db"},
		"so is one with any domain":                 {url: "https://db.shop.svc.corp.example/", wantService: "db"},
		"http to NAME of another namespace":         {url: "http://db.bank/", want: "http to db.bank, which is no Service of namespace shop"},
		"http to a Service of another namespace":    {url: "http://db.bank.svc/", want: "the host db.bank.svc is in the cluster, but no Service of namespace shop"},
		"https to a Service of another namespace":   {url: "https://db.bank.svc.cluster.local/", want: "the host db.bank.svc.cluster.local is in the cluster, but no Service of namespace shop"},
		"https to a pod of a StatefulSet elsewhere": {url: "https://db-0.db.bank.svc.cluster.local/", want: "the host db-0.db.bank.svc.cluster.local is in the cluster, but no Service of namespace shop"},
		"https to a pod by its name in DNS":         {url: "https://10-1-2-4.bank.pod.corp.example/", want: "the host 10-1-2-4.bank.pod.corp.example is in the cluster, but no Service of namespace shop"},
		"https to something else in the cluster":    {url: "https://db.bank.cluster.local/", want: "the host db.bank.cluster.local is in the cluster, but no Service of namespace shop"},
		"https to two labels is a host":             {url: "https://example.com/"},
		"the API server by its bare name":           {url: "https://kubernetes/", namespace: "default", want: "the host kubernetes is the API server"},
		"a Service named kubernetes":                {url: "https://kubernetes/", wantService: "kubernetes"},
	}
	podIPs := []netip.Addr{netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("fd00::1")}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			namespace := "shop"
			if tc.namespace != "" {
				namespace = tc.namespace
			}
			got, err := inspectFor(tc.url, namespace, podIPs, nil)
			if diff := cmp.Diff(tc.want, reasonOf(t, err)); diff != "" {
				t.Errorf("reason (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantService, got.service); diff != "" {
				t.Errorf("Service (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSameOrigin(t *testing.T) {
	cases := map[string]struct {
		a, b string
		want bool
	}{
		"another path":                   {"https://a.example/x", "https://A.example:443/y?z", true},
		"another host":                   {"https://a.example/x", "https://b.example/x", false},
		"another port":                   {"https://a.example/x", "https://a.example:8443/x", false},
		"another scheme on the same one": {"http://db:443/", "https://db/", false},
		"an address that is refused":     {"https://127.0.0.1:8443/x", "https://127.0.0.1:8443/y", true},
		"no URL":                         {"x", "x", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := SameOrigin(tc.a, tc.b); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}

func TestRefusedAddresses(t *testing.T) {
	cases := map[string]string{
		"8.8.8.8": "", "10.0.0.1": "", "2001:4860:4860::8888": "", "fd00::1": "", "64:ff9b::808:808": "", "2002:808:808::1": "",
		"0.1.2.3": "unspecified", "127.0.0.1": "of loopback", "169.254.0.1": "link-local", "224.0.0.1": "of multicast", "255.255.255.255": "reserved or of broadcast",
		"100.100.100.200": metadata, "168.63.129.16": metadata, "192.0.0.192": metadata, "fd00:ec2::254": metadata, "fd20:ce::254": metadata,
		"::": "unspecified", "::1": "of loopback", "fe80::1": "link-local", "febf::1": "link-local", "ff02::1": "of multicast", "fe80::1%eth0": "link-local",
		"::ffff:127.0.0.1":          "of loopback",
		"::127.0.0.1":               "IPv4-compatible, which is deprecated",
		"::ffff:0:127.0.0.1":        "of loopback",
		"64:ff9b::7f00:1":           "of loopback",
		"64:ff9b:1::a00:1":          "of a local NAT64",
		"2002:7f00:1::1":            "of loopback",
		"2002:a9fe:a9fe::":          "link-local",
		"2001:0:7f00:1::1":          "of loopback", // Teredo: the server.
		"2001:0:808:808::80ff:fffe": "of loopback", // Teredo: the client, ^127.0.0.1.
		"2001:db8::5efe:7f00:1":     "of loopback", // ISATAP.
		"2001:db8::200:5efe:a9fe:1": "link-local",  // ISATAP of a global address.
		"10.96.0.1":                 "of the API server",
		"::ffff:10.96.0.1":          "of the API server",
		"64:ff9b::a60:1":            "of the API server",
	}
	denied := []deniedAddr{{netip.MustParseAddr("::ffff:10.96.0.1"), "of the API server"}}
	for literal, want := range cases {
		t.Run(literal, func(t *testing.T) {
			if diff := cmp.Diff(want, refused(netip.MustParseAddr(literal), denied)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if refused(netip.Addr{}, nil) == "" {
		t.Error("no address is not refused")
	}
}
