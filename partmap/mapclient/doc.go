// Package mapclient is the leased, cached view of buckets' maps: it finds the
// range of a key, swaps maps, and waits until nobody acts on an older one.
//
// Client, with its lookups, edits and swaps, knows nothing of how leases are kept
// but what one of two forms offers. The embedded one (epochs.go) counts the
// references to each epoch and has no timers. The network one (network.go, polls.go,
// announce.go) gives leases for a time, polls map clocks to renew them, and waits
// by the clock. The protocol is the one in the docs, "Map clocks, leases,
// acknowledgement, waits".
package mapclient
