// Package countbook computes estimates of the sizes and loads of partitions, for backends of counters. Package counter
// declares what clients send to a backend, and what the backend answers.
//
// A State has everything that is known about one partition: the last exact count of its rows (a Recount), what clients
// have counted since then, a sample of the keys, and rates of requests. From these it computes Stats and Quanta. A Book
// has the States of all partitions, and the number of the last batch of counts from each client. By these numbers a
// batch that comes twice counts once, and a missing batch is noticed.
//
// A backend stores Books, and nothing else: NewMemory in memory, package localcounter in a file, package rediscounter
// in Redis. Files and Redis have the encodings of this package. Keep also stores copies of the sizes beside the rows,
// for a backend that may lose all its counts.
//
// States and Books do no I/O and read no clock. A Recount reads rows, page by page.
package countbook
