// Package leader elects one of several processes for a kind of work: moving ranges, or cleaning. The leader of a work
// holds a lease, which is a record in the store that only ever changes by compare-and-swap.
//
// A leader saves work: two processes that move the same ranges copy them twice. Safety never depends on the leader.
// Whatever two executors or cleaners do at the same time, the rules of the map and of versions hold. The lease also
// gives a name: a second process learns which process leads, and at which address it takes commands.
package leader
