// Package mapclient is the leased, cached view of the maps of buckets. A Client finds the
// range of a key, swaps maps, and waits until no operation uses an older map.
//
// It has two forms of leases. The embedded form (epochs.go) counts the leases of each epoch
// and has no timers. The network form (network.go, polls.go, announce.go) gives leases for a
// time, renews them by polling map clocks, and waits by the clock. See docs/protocol.md,
// "Map clocks, leases, acknowledgement, waits".
package mapclient
