// Package adopt brings the rows of another store into a bucket while the application goes on. An adoption is a first
// copy, then catch-ups that compare both sides and mend the bucket, and a last comparison.
//
// The source is the truth until the cut-over. The application writes to the source alone, or to both sides: to the
// source first, and to the bucket once the source has acknowledged. Then a write to the bucket that is newer than the
// row read from the source always began after the read, and wins: see Bring of package door, and docs/adopt.md.
package adopt
