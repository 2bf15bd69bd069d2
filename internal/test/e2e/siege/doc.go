// Package siege is what tests of hostile clients have in common: a server, measured from
// outside, those who attack it over raw connections, and an honest client that knows
// every answer and takes the time. Only tests import it.
package siege
