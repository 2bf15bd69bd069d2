// Package webguard protects servers from those who can reach them: servers without
// authentication from web pages, which reach what their browser's machine reaches, and
// servers' clients from one client that takes everything.
package webguard

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Guard checks requests. It is safe for concurrent use.
type Guard struct {
	any      bool
	hosts    map[string]bool
	suffixes []string // of hosts below a name
	cross    *http.CrossOriginProtection
}

// anyHost allows all hosts.
const anyHost = "*"

// New makes a guard that accepts loopback names, the given hosts (names or addresses, or *
// for any), and the given domains with all names below them.
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

// CheckHost refuses a request whose Host is not a name of the server. A web page can point
// its own name at this machine (DNS rebinding): the browser then takes the server's answers
// for the page's, but sends the page's name as Host.
func (g *Guard) CheckHost(r *http.Request) error {
	name := hostOf(r.Host)
	below := func(suffix string) bool { return strings.HasSuffix(name, suffix) }
	if g.any || loopback(name) || g.hosts[name] || slices.ContainsFunc(g.suffixes, below) {
		return nil
	}
	const most = 255 // of a name in DNS
	return fmt.Errorf("the host %.*q is not a loopback name, and clients that do not authenticate themselves "+
		"may use no other, as a web page can make up names: allow this one with --allow-host", most, name)
}

// CheckOrigin refuses a changing request of a web page of another origin.
func (g *Guard) CheckOrigin(r *http.Request) error {
	if err := g.cross.Check(r); err != nil {
		return fmt.Errorf("the request comes from a web page of another origin: %w", err)
	}
	return nil
}

// CheckAnyOrigin is CheckOrigin whatever the method, for requests that are costly.
func (g *Guard) CheckAnyOrigin(r *http.Request) error {
	changing := *r
	changing.Method = http.MethodPost
	return g.CheckOrigin(&changing)
}

func loopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.Unmap().IsLoopback()
}

// hostOf returns the name or address in a Host header or in an address to dial.
func hostOf(hostport string) string {
	if host, port, err := net.SplitHostPort(hostport); err == nil && strings.Trim(port, "0123456789") == "" {
		hostport = host
	}
	return canonical(hostport)
}

// LoopbackAddress reports whether a host's name or address, which may have a port, is a loopback one.
func LoopbackAddress(hostport string) bool { return loopback(hostOf(hostport)) }

// canonical is the form in which names are compared.
func canonical(host string) string {
	host = strings.ToLower(strings.TrimSpace(host))
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		host = host[1 : len(host)-1]
	}
	return strings.TrimSuffix(host, ".")
}
