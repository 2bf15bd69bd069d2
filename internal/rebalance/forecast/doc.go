// Package forecast finds out from the highest keys of a range where the next ones will fall, so that partitions can be
// cut ahead of appends and no row ever moves.
//
// Keys that are appended have something in them that grows: a number, a time, or both. The package looks for it in
// three ways, the most particular first:
//
//   - dates and times in the usual spellings, in local time or not, with whatever
//     follows them: a counter that begins anew each day, or random keys within the
//     day or hour;
//   - numbers that stand for a time (Unix time, UUIDv7, ULID, KSUID, Snowflake and the
//     like), where it is said how many rows come per second;
//   - any number of constant width, in whatever alphabet: decimal, hexadecimal,
//     base 32, 36, 58, 62 or 64, or bytes.
//
// A line of value against rank is fitted to the keys; keys that don't lie near one are not foreseen. Nor are keys that
// are not appended at all, numbers that are about to get a digit more, which then sort below, and the keys within a day
// or an hour if nobody knows how many come per second. Who gets such an answer has to cut right above the highest key,
// late, or has to be told the cuts.
//
// The package is pure: it does no I/O, and neither asks for the time nor for chance. Its functions may be used from
// several goroutines at once.
package forecast
