// Package mapclient is the leased, cached view of buckets' maps: it finds the
// range of a key, swaps maps, and waits until nobody acts on an older one.
package mapclient
