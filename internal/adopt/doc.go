// Package adopt brings rows that others keep into a bucket, while the application goes on: a first copy, catch-ups that
// compare and mend, and a last comparison.
//
// The source is the truth until the cut-over. The application writes to it alone, or to both: to the source first, and
// to the bucket when that is acknowledged. Then a write to the bucket that is newer than what was read from the source
// always begins after that read, and wins: see listing.Bucket.Bring, and docs/adopt.md.
package adopt
