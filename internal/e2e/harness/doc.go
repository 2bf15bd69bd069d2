// Package harness is what tests of the whole have in common: the programs, built
// once and run; keyspaces of their own on a Cassandra node; requests over HTTP, and
// waiting. Only tests import it.
package harness
