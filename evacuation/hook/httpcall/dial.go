package httpcall

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
)

// transport returns one for a single call, which connects to nothing but the route.
func (c *Client) transport(call Call, r route) (*http.Transport, error) {
	pool, err := certificates(call.CA)
	if err != nil {
		return nil, err
	}
	return &http.Transport{
		Proxy: nil,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return c.connect(ctx, r)
		},
		// The server's name is left to the transport, which takes the URL's host.
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool},
		TLSHandshakeTimeout:    connectTimeout,
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeader,
	}, nil
}

// connect looks the host up once, checks all that it found, and connects to that.
func (c *Client) connect(ctx context.Context, r route) (net.Conn, error) {
	found, err := c.lookUp(ctx, r)
	if err != nil {
		return nil, err
	}
	denied, err := c.denied(ctx, r)
	if err != nil {
		return nil, err
	}
	for _, addr := range found {
		if why := c.refused(addr, denied); why != "" {
			return nil, refuse("the host %s has the address %s, which is %s", r.target.host, addr, why)
		}
	}
	var failed []error
	for _, addr := range found {
		conn, err := c.dial(ctx, "tcp", netip.AddrPortFrom(addr, r.target.port).String())
		if err == nil {
			return conn, nil
		}
		failed = append(failed, err)
	}
	return nil, errors.Join(failed...)
}

// lookUp returns the addresses of the host. The name of a Service never goes to the DNS,
// which would look for it in the manager's own namespace first, and no other name is
// completed by a search list.
func (c *Client) lookUp(ctx context.Context, r route) ([]netip.Addr, error) {
	t := r.target
	var found []netip.Addr
	var err error
	switch {
	case t.addr.IsValid():
		found = []netip.Addr{t.addr}
	case t.service != "":
		found, err = c.options.Services.Addresses(ctx, r.namespace, t.service)
	default:
		found, err = c.options.Resolver.LookupNetIP(ctx, "ip", t.host+".")
	}
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", t.host, err)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("look up %s: no address", t.host)
	}
	all := make([]netip.Addr, 0, len(found))
	for _, addr := range found {
		all = append(all, addr.Unmap())
	}
	return all, nil
}

// denied returns the addresses that are refused to this call.
func (c *Client) denied(ctx context.Context, r route) ([]deniedAddr, error) {
	cluster, err := c.options.Denied(ctx)
	if err != nil {
		return nil, fmt.Errorf("find addresses that are refused: %w", err)
	}
	denied := make([]deniedAddr, 0, len(cluster)+len(r.nodeIPs))
	for _, addr := range cluster {
		denied = append(denied, deniedAddr{addr, "of the API server or of Drawbridge"})
	}
	for _, addr := range r.nodeIPs {
		denied = append(denied, deniedAddr{addr, "of the pod's node"})
	}
	return denied, nil
}

// refused says why an address may not be dialed, "" if it may.
func (c *Client) refused(addr netip.Addr, denied []deniedAddr) string {
	if allows(c.options.Allow, addr) {
		return ""
	}
	return refused(addr, denied)
}

func allows(prefixes []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}
