// Package forecast finds out from the highest keys of a range where the next ones will fall, so that partitions can be
// cut ahead of appends and no row moves.
//
// Appended keys contain a number, a time, or both, that grows. The package looks for it in three ways, the most specific
// first:
//
//   - dates and times in the usual formats, in local time or not, with whatever follows them: a counter that restarts
//     each day, or random keys within the day or hour;
//   - numbers that stand for a time (Unix time, UUIDv7, ULID, KSUID, Snowflake and the like), if the rows per second are
//     given;
//   - any number of constant width: decimal, hexadecimal, base 32, 36, 58, 62 or 64, or bytes.
//
// It fits a line of value against rank to the keys. It does not forecast keys far from a line, keys that are not
// appended, numbers that are about to get another digit, which then sort below, and keys within a day or an hour if the
// rows per second are unknown. Then the caller cuts right above the highest key, late, or needs the cuts from outside.
//
// The package is pure: it does no I/O, and uses no clock and no random numbers. Its functions are safe for concurrent use.
package forecast
