// Package mapclient gives access to the maps of buckets, which say in which partition each key lies. A Client finds the
// range of a key, replaces a map by a changed map, and waits until no operation uses an older map. Operations use a map
// under a lease, and nodes of maps are cached.
//
// A Client gives leases in one of two forms. The embedded form (epochs.go) counts the leases of each version of a map
// and has no timers. The network form (network.go, polls.go, announce.go) gives leases for a time, renews them by
// polling map clocks (counters of changes in the store), and waits by the clock. See docs/protocol.md, "Map clocks",
// "Leases", "The rule of acknowledgement" and "Waits".
package mapclient
