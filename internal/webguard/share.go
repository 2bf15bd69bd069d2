package webguard

import "net/netip"

// Client returns the network address by which a client is told from others. remote is the address and port of the
// client's connection. An IPv4 client is its address. An IPv6 client is its /64 network, as one client can use all
// addresses in it. If remote cannot be parsed, Client returns the zero Prefix.
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

// MayTake reports whether a client may take one more place of a limited number, such as a connection. has is the number
// of places that the client has, and free the number that nobody has. The client may if has is less than three times
// free. So one client alone gets three quarters of all places, two clients get three sevenths each, and any number of
// clients leave some places free.
func MayTake(has, free int) bool { return has < 3*free }
