// Package scheduler moves the ranges of many buckets. It runs an executor for each bucket that has something to do,
// several at once, with one budget of rows per second for all.
//
// The scheduler finds moves that any process left unfinished: at once from the list of busy buckets, and in the end by
// a slow scan of all roots. It deletes map nodes that no map names any more, and opens buckets again whose deletion was
// not completed. Goals that have not begun are in memory only; moves that have begun are in the maps.
package scheduler
