// Package plan is the vocabulary of finding a better layout for a bucket:
// a Layout and its Limits go into a Planner, a Plan comes out, judged by an
// Objective.
//
// What a planner may do is small, and is what Check holds every plan to:
//
//   - Cuts lie at keys of quanta or at today's starts, nowhere else: what lies
//     between two quanta was never measured.
//   - An old id keeps at most one contiguous part of its own range, and never
//     receives keys. So a range that spans two of today's partitions has a fresh
//     id, and all its rows move.
//   - The start of a pinned partition stays a cut.
//   - No range holds more than MaxRows if it can be divided.
//
// The package is pure: it does no I/O, and neither asks for the time nor for
// chance. Everything in it may be used from several goroutines at once as long
// as nobody changes the values passed in.
package plan
