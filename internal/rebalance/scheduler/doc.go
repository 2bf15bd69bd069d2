// Package scheduler moves the rows of ranges between partitions, in many buckets. It runs an executor for each bucket
// that has moves to make, several at once, with one limit of rows per second for all.
//
// The scheduler finds moves that any process left unfinished: at once in the stored list of busy buckets, and in the
// end by a slow scan of the roots of all buckets. The scheduler also deletes map nodes that no map names any more, and
// opens buckets again whose deletion was not completed. Moves that have not begun are in memory only. Moves that have
// begun are in the maps of the buckets.
package scheduler
