// Package mapclient has the leased, cached view of the maps of buckets. A Client finds the range of a key,
// swaps maps, and waits until no operation uses an older map.
//
// A Client gives leases in one of two forms. The embedded form (epochs.go) counts the leases of each epoch and
// has no timers. The network form (network.go, polls.go, announce.go) gives leases for a time, renews them by
// polling map clocks, and waits by the clock. See docs/protocol.md, "Map clocks", "Leases", "The rule of
// acknowledgement" and "Waits".
package mapclient
