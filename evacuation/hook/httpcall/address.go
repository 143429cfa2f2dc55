package httpcall

import (
	"fmt"
	"net/netip"
	"slices"
)

// never are addresses that nobody is reached at, or those of the machine that asks: the
// node, its neighbors, its cloud.
var never = []struct {
	prefix netip.Prefix
	what   string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "unspecified"},
	{netip.MustParsePrefix("127.0.0.0/8"), "of loopback"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local"},
	{netip.MustParsePrefix("224.0.0.0/4"), "of multicast"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved or of broadcast"},
	{netip.MustParsePrefix("::/128"), "unspecified"},
	{netip.MustParsePrefix("::1/128"), "of loopback"},
	{netip.MustParsePrefix("::/96"), "IPv4-compatible, which is deprecated"},
	{netip.MustParsePrefix("fe80::/10"), "link-local"},
	{netip.MustParsePrefix("fec0::/10"), "site-local, which is deprecated"},
	{netip.MustParsePrefix("ff00::/8"), "of multicast"},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "of a local NAT64"},
	// Metadata services that are not link-local: Alibaba Cloud, Azure, Oracle Cloud, AWS
	// and Google Cloud.
	{netip.MustParsePrefix("100.100.100.200/32"), metadata},
	{netip.MustParsePrefix("168.63.129.16/32"), metadata},
	{netip.MustParsePrefix("192.0.0.192/32"), metadata},
	{netip.MustParsePrefix("fd00:ec2::254/128"), metadata},
	{netip.MustParsePrefix("fd20:ce::254/128"), metadata},
}

const metadata = "of a cloud's metadata service"

// Prefixes of IPv6 whose addresses have one of IPv4 in them, to which a router may
// translate them.
var (
	nat64     = netip.MustParsePrefix("64:ff9b::/96")
	siit      = netip.MustParsePrefix("::ffff:0:0:0/96")
	sixToFour = netip.MustParsePrefix("2002::/16")
	teredo    = netip.MustParsePrefix("2001::/32")
)

// forms returns all addresses that a packet to a may end at: itself without the prefix
// of an IPv4-mapped one, and the addresses of IPv4 in it.
func forms(a netip.Addr) []netip.Addr {
	a = a.Unmap().WithZone("")
	all := []netip.Addr{a}
	if a.Is4() {
		return all
	}
	b := a.As16()
	four := func(from int, flip byte) netip.Addr {
		return netip.AddrFrom4([4]byte{b[from] ^ flip, b[from+1] ^ flip, b[from+2] ^ flip, b[from+3] ^ flip})
	}
	switch {
	case nat64.Contains(a), siit.Contains(a):
		all = append(all, four(12, 0))
	case sixToFour.Contains(a):
		all = append(all, four(2, 0))
	case teredo.Contains(a):
		// The server, and the client with all bits flipped.
		all = append(all, four(4, 0), four(12, 0xff))
	}
	// ISATAP: the second half is 0:5efe or 200:5efe and the address.
	if b[8]&^0x02 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe {
		all = append(all, four(12, 0))
	}
	return all
}

// refused says why an address may not be dialed, "" if it may. denied are addresses that
// only the caller knows, with what they are.
func refused(a netip.Addr, denied []deniedAddr) string {
	if !a.IsValid() {
		return "no address"
	}
	if a.Zone() != "" {
		return "link-local"
	}
	for _, form := range forms(a) {
		for _, n := range never {
			if n.prefix.Contains(form) {
				return n.what
			}
		}
		for _, d := range denied {
			if slices.Contains(forms(d.addr), form) {
				return d.what
			}
		}
	}
	return ""
}

// deniedAddr is an address that may not be dialed.
type deniedAddr struct {
	addr netip.Addr
	what string
}

// addresses parses literal addresses.
func addresses(what string, literals []string) ([]netip.Addr, error) {
	all := make([]netip.Addr, 0, len(literals))
	for _, literal := range literals {
		a, err := netip.ParseAddr(literal)
		if err != nil {
			return nil, fmt.Errorf("parse address of the %s: %w", what, err)
		}
		all = append(all, a.Unmap())
	}
	return all, nil
}
