// Package scheduler moves the ranges of many buckets: an executor for each bucket
// that has something to do, several at once, with one budget of rows per second.
//
// It finds what was left unfinished, by whomever: from the table of busy buckets at
// once, and from a slow scan of all roots in the end. It collects what no map names
// any more and opens buckets again whose deletion nobody finishes. What was asked
// for and has not begun is in memory only; what has begun is in the maps.
package scheduler
