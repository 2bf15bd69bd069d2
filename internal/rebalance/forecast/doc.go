// Package forecast tells from the highest keys of a range which keys come next. So empty ranges can be cut ahead of
// appended keys, and no row must be moved.
//
// Appended keys contain a number, a time, or both, that grows. The package looks for the growing part in three ways,
// the most specific first:
//
//   - dates and times in the usual formats, in local time or not, followed by anything: a counter that restarts each
//     day, or random keys within the day or hour;
//   - numbers that stand for a time (Unix time, UUIDv7, ULID, KSUID, Snowflake and the like), if the rows per second
//     are given;
//   - any number of constant width: decimal, hexadecimal, base 32, 36, 58, 62 or 64, or bytes.
//
// It fits a line to the keys: the number in the key as a function of the rank of the key. The keys order/000970,
// order/000980 and order/000990 grow by 10 per row, so a cut 100 rows ahead is order/00199.
//
// Some keys are not forecast: keys far from a line, keys that are not appended, numbers that are about to get another
// digit and then sort below, and keys within a day or an hour if the rows per second are unknown. For these keys the
// caller cuts right above the highest key, which is late, or takes the cuts from outside.
//
// The package is pure: it does no I/O, and uses no clock and no random numbers. Its functions are safe for concurrent
// use.
package forecast
