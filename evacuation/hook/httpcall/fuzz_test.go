package httpcall

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"
)

// oneAddress is what every name and every Service of a fuzzed call resolves to.
type oneAddress netip.Addr

func (a oneAddress) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	return []netip.Addr{netip.Addr(a)}, nil
}

func (a oneAddress) Addresses(context.Context, string, string) ([]netip.Addr, error) {
	return []netip.Addr{netip.Addr(a)}, nil
}

// Whatever the URL, and whatever its host resolves to: nothing but an address, and none
// that is refused, is dialed; http goes to the pod or to a Service.
func FuzzDo(f *testing.F) {
	for _, url := range []string{
		"https://example.com/", "http://10.1.2.3/", "http://db:80/", "https://db.shop.svc./", "http://2130706433/", "http://0x7f.1/", "https://127.0.0.1/",
		"https://[::ffff:169.254.169.254]/", "https://[64:ff9b::7f00:1]/", "https://[2002:7f00:1::]:1/", "https://[fe80::1%25eth0]/", "http://a@b/", "https://localhost./",
		"https://[::1]:443/", "http://0/", "https://１２７.0.0.1/", "https://127.1", "//db", "https://db%2e/", `https:\\db`, "https://[::127.0.0.1]/", "https://10.96.0.1/",
	} {
		f.Add(url, []byte{127, 0, 0, 1})
		f.Add(url, []byte{8, 8, 8, 8})
		f.Add(url, netip.MustParseAddr("::ffff:169.254.169.254").AsSlice())
	}
	pod, api := netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("10.96.0.1")
	notDialed := errors.New("not dialed")
	f.Fuzz(func(t *testing.T, url string, address []byte) {
		resolved, ok := netip.AddrFromSlice(address)
		if !ok {
			resolved = netip.MustParseAddr("8.8.8.8")
		}
		c, err := New(Options{
			Services: oneAddress(resolved), Resolver: oneAddress(resolved), Clock: testclock.NewFakeClock(time.Unix(0, 0)),
			Denied: func(context.Context) ([]netip.Addr, error) { return []netip.Addr{api}, nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		var dialed []netip.AddrPort
		c.dial = func(_ context.Context, _, to string) (net.Conn, error) {
			parsed, err := netip.ParseAddrPort(to)
			if err != nil {
				t.Errorf("%q dials %q, which is no address", url, to)
			}
			dialed = append(dialed, parsed)
			return nil, notDialed
		}
		_, err = c.Do(t.Context(), Call{Namespace: "shop", PodIPs: []string{pod.String()}, Method: "POST", URL: url})
		if err == nil {
			t.Errorf("%q has an answer", url)
		}
		for _, to := range dialed {
			// Said by the standard library, not by the code under test.
			if a := to.Addr(); a.Unmap() != a || a.IsLoopback() || a.IsUnspecified() || a.IsLinkLocalUnicast() || a.IsMulticast() || a == api || a.Zone() != "" {
				t.Errorf("%q dials %s", url, to)
			}
			if why := refused(to.Addr(), []deniedAddr{{api, "denied"}}); why != "" {
				t.Errorf("%q dials %s, which is %s", url, to, why)
			}
			if to.Port() == 0 {
				t.Errorf("%q dials port 0", url)
			}
		}
		if CheckURL(url) != nil && len(dialed) > 0 {
			t.Errorf("%q is dialed and would not be accepted", url)
		}
		got, err := inspectFor(url, "shop", []netip.Addr{pod}, nil)
		if err == nil && got.url.Scheme == "http" && got.addr != pod && got.service == "" {
			t.Errorf("%q is neither the pod nor a Service", url)
		}
	})
}
