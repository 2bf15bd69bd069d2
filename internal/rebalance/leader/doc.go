// Package leader elects which of several processes works at present: which one moves
// ranges, and which one cleans. The leader of a work holds a lease, a record in the store
// that only ever changes by compare-and-swap.
//
// A leader saves work: two that move the same ranges copy them twice. Safety never
// depends on it; whatever two executors or cleaners do at once, the rules of the map and
// of versions hold. What the lease gives beyond that is a name: a second process learns
// who leads, and at which address it takes commands.
package leader
