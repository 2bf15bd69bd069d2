// Package webguard protects servers from their clients. A Guard protects a server without authentication from web
// pages, which can reach every address that the browser's machine can reach. MayTake protects a server from one client
// that takes all connections.
package webguard

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Guard refuses requests that a web page makes a browser send to this server. A Guard checks the host in a request, and
// the origin (the web site) from which the request comes. The methods of a Guard are safe for concurrent use.
type Guard struct {
	any      bool
	hosts    map[string]bool
	suffixes []string // a request's host may end with one of these
	cross    *http.CrossOriginProtection
}

// anyHost is the host name by which the function New allows requests for every host.
const anyHost = "*"

// New returns a Guard that accepts requests for loopback names, for hosts, and for domains with all names below them. A
// host is a name or an address. The host "*" allows every host.
func New(hosts, domains []string) (*Guard, error) {
	g := &Guard{hosts: map[string]bool{}, cross: http.NewCrossOriginProtection()}
	for _, h := range hosts {
		name := canonical(h)
		_, notAddress := netip.ParseAddr(name)
		bad := strings.ContainsAny(name, "/*@ ") || strings.Contains(name, ":") && notAddress != nil
		if name == "" || bad && name != anyHost {
			return nil, fmt.Errorf("%q is not the name of a host like s3.example.com, nor an address, nor %s", h, anyHost)
		}
		g.any = g.any || name == anyHost
		g.hosts[name] = true
	}
	for _, d := range domains {
		g.hosts[canonical(d)] = true
		g.suffixes = append(g.suffixes, "."+canonical(d))
	}
	return g, nil
}

// CheckHost returns an error if the Host header of a request is not a name of this server. The check protects against
// DNS rebinding: a web page makes the name of its own site resolve to this machine, and the browser then lets the page
// read this server's answers. The Host header of such a request still has the name of the page's site.
func (g *Guard) CheckHost(r *http.Request) error {
	name := hostOf(r.Host)
	below := func(suffix string) bool { return strings.HasSuffix(name, suffix) }
	if g.any || loopback(name) || g.hosts[name] || slices.ContainsFunc(g.suffixes, below) {
		return nil
	}
	const most = 255 // the longest name in DNS
	return fmt.Errorf("the host %.*q is not a loopback name, and clients that do not authenticate themselves "+
		"may use no other, as a web page can make up names: allow this one with --allow-host", most, name)
}

// CheckOrigin returns an error if a web page of another site makes the request and the method changes data, e.g. PUT.
// Requests with GET, HEAD or OPTIONS pass.
func (g *Guard) CheckOrigin(r *http.Request) error {
	if err := g.cross.Check(r); err != nil {
		return fmt.Errorf("the request comes from a web page of another origin: %w", err)
	}
	return nil
}

// CheckAnyOrigin returns an error if a web page of another site makes the request, whatever the method. CheckAnyOrigin
// is for requests that only read, but cost much.
func (g *Guard) CheckAnyOrigin(r *http.Request) error {
	changing := *r
	changing.Method = http.MethodPost
	return g.CheckOrigin(&changing)
}

func loopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.Unmap().IsLoopback()
}

// hostOf returns the name or address of a host without the port, in lower case. hostport is the value of a Host header,
// or an address to connect to.
func hostOf(hostport string) string {
	if host, port, err := net.SplitHostPort(hostport); err == nil && strings.Trim(port, "0123456789") == "" {
		hostport = host
	}
	return canonical(hostport)
}

// LoopbackAddress reports whether hostport names this machine: localhost or a loopback address, with or without a port.
func LoopbackAddress(hostport string) bool { return loopback(hostOf(hostport)) }

// canonical returns the name or address of a host in the form in which hosts are compared: lower case, without the
// brackets of an IPv6 address or a final dot.
func canonical(host string) string {
	host = strings.ToLower(strings.TrimSpace(host))
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		host = host[1 : len(host)-1]
	}
	return strings.TrimSuffix(host, ".")
}
