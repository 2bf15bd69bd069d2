package webguard

import "net/netip"

// Client returns the network prefix that identifies a client, for limits per client. remote is the address and port of
// the client's connection. For IPv4 the result is the whole address. For IPv6 the result is the /64 network, as one
// client can use all addresses of a /64 network. If remote cannot be parsed, the result is the zero Prefix.
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

// MayTake reports whether a client may take one more item of a limited resource, such as a connection. has is the
// number of items that the client has, and free the number that nobody has. The client may take an item if has is less
// than three times free. So one client alone gets three quarters of all items, two clients get three sevenths each, and
// any number of clients leave some items free.
func MayTake(has, free int) bool { return has < 3*free }
