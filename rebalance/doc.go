// Package plan has the types for finding a better layout of a bucket. A Layout and its Limits go into a Planner; a Plan
// comes out, which an Objective judges.
//
// A planner may do little, and Check holds every plan to these rules:
//
//   - Cuts lie at keys of quanta or at today's starts, nowhere else: keys between two quanta were never measured.
//   - An old id keeps at most one contiguous part of its own range, and never receives keys. So a range that spans two
//     of today's partitions has a fresh id, and all its rows move.
//   - The start of a pinned partition stays a cut.
//   - No range holds more than MaxRows if it can be divided.
//
// The package is pure: it does no I/O, and uses no clock and no random numbers. Everything in it may be used from
// several goroutines at once as long as nobody changes the values passed in.
package rebalance
