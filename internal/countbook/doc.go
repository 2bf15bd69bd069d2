// Package countbook has what backends of counters know of partitions, and what they compute from it. Package counter
// has what clients send to backends, and what backends answer.
//
// A State is the knowledge about one partition: an exact count of its rows, the last Recount; what clients have told
// since, as numbers and as a sample of keys; and rates, in which recent requests weigh more. It answers with Stats and
// Quanta. A Book has the States of all partitions, and the number of the last batch of each client: a batch that comes
// twice counts once, and one that is missing is noticed.
//
// A backend stores Books, and nothing else: NewMemory in memory, package localcounter in a file, package rediscounter
// in Redis, each by the encodings of this package. Keep puts copies of the sizes beside the rows, for a backend that
// may lose everything.
//
// No State or Book does I/O or reads a clock. A Recount reads rows, page by page.
package countbook
