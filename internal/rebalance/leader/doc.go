// Package leader elects which of several rebalancers works at present. The leader
// holds a lease, a record in the store that only ever changes by compare-and-swap.
//
// A leader saves work: two that move the same ranges copy them twice. Safety never
// depends on it; whatever two executors do at once, the map's own rules hold. What
// the lease gives beyond that is a name: a second rebalancer learns who leads, and
// at which address it takes commands.
package leader
