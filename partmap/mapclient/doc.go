// Package mapclient is the leased, cached view of buckets' maps: it finds the
// range of a key, swaps maps, and waits until nobody acts on an older one.
//
// Client, with its lookups, edits and swaps, knows nothing of how leases are kept
// but what epochs offers: acquire and release, publish, wait. That is the embedded
// form's part (a reference count per epoch, no timers).
package mapclient
