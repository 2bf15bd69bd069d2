// Package webguard keeps pages in somebody's browser from commanding servers that ask for
// neither keys nor a token: they can reach what their user's machine reaches.
package webguard

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
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

// New makes a guard that takes loopback names, the hosts given (names or addresses, or *
// for any), and the domains given with all names below them.
func New(hosts, domains []string) (*Guard, error) {
	g := &Guard{hosts: map[string]bool{}, cross: http.NewCrossOriginProtection()}
	for _, h := range hosts {
		name := canonical(h)
		bad := strings.ContainsAny(name, "/*@ ") || strings.Contains(name, ":") && !isAddress(name)
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

// CheckHost refuses a request that names the server by a name that is not its own. A page
// may have its own name lead to this machine (DNS rebinding); the browser then takes what
// the server answers for the page's, but still says that name.
func (g *Guard) CheckHost(r *http.Request) error {
	name := hostOf(r.Host)
	if g.any || Loopback(name) || g.hosts[name] {
		return nil
	}
	for _, s := range g.suffixes {
		if strings.HasSuffix(name, s) {
			return nil
		}
	}
	const most = 255 // of a name in DNS
	return fmt.Errorf("the host %.*q is not a loopback name, and others are taken from clients only that "+
		"authenticate themselves, as a web page can make up names: allow this one with --allow-host", most, name)
}

// CheckOrigin refuses a request that changes something if it comes from a page of another
// origin.
func (g *Guard) CheckOrigin(r *http.Request) error {
	if err := g.cross.Check(r); err != nil {
		return fmt.Errorf("a web page of another origin asks for it: %w", err)
	}
	return nil
}

// CheckAnyOrigin is CheckOrigin also for requests that change nothing: they cost something.
func (g *Guard) CheckAnyOrigin(r *http.Request) error {
	changing := *r
	changing.Method = http.MethodPost
	return g.CheckOrigin(&changing)
}

// Loopback reports whether a host's name or address leads to this machine only.
func Loopback(host string) bool {
	host = canonical(host)
	if host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback()
}

// hostOf is the name or the address in a Host header, or in an address to dial.
func hostOf(hostport string) string {
	if host, port, err := net.SplitHostPort(hostport); err == nil && strings.Trim(port, "0123456789") == "" {
		hostport = host
	}
	return canonical(hostport)
}

// LoopbackAddress is Loopback of a host that may have a port.
func LoopbackAddress(hostport string) bool { return Loopback(hostOf(hostport)) }

// Client is who a connection is from, by its remote address with the port: addresses of
// the sixth version count by their network, of which one client has as many as it likes.
// What is no address is the zero Prefix.
func Client(remote string) netip.Prefix {
	a, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{}
	}
	addr, bits := a.Addr().Unmap().WithZone(""), 64
	if addr.Is4() {
		bits = 32
	}
	p, _ := addr.Prefix(bits)
	return p
}

// canonical is a name in the one form that is compared.
func canonical(host string) string {
	host = strings.ToLower(strings.TrimSpace(host))
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		host = host[1 : len(host)-1]
	}
	return strings.TrimSuffix(host, ".")
}

func isAddress(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}
