package webguard

import "net/netip"

// Client identifies the client of a connection, by the remote address with its port. IPv6
// addresses count by their /64 network, of which one client has as many as it likes. What is
// not an address yields the zero Prefix.
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

// MayTake is the rule by which clients share a fixed number of places: one that has some
// gets another while at least a third as many, and one more, are free. So one client gets
// three quarters of all, two get three sevenths each, and any number leave some.
func MayTake(has, free int) bool { return has < 3*free }
