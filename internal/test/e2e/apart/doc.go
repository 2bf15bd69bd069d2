// Package apart tests what holds, and what it costs, where two data centres of three Cassandra
// nodes each have a distance between them. The six nodes take minutes to start, and 6 GB of memory:
// the tests run only by `make cluster`, which says how. They print a table of figures.
package apart
