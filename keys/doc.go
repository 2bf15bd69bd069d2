// Package keys makes keys whose order as bytes is the order of the values that they are made of: tuples, numbers,
// times, ids of posts, with the newest first if need be.
//
//	key := keys.Of(keys.String("alice"), keys.Desc(keys.Int(id)))   // newest first
//	alice := keys.Of(keys.String("alice"))                          // the prefix of all keys of alice
//
//	r := keys.Read(key)
//	user, id := r.String(), r.Int()
//	err := r.End()
//
// The encoding is that of FoundationDB's tuple layer (design/tuple.md in its repository) but for three differences.
// Strings end in one more byte, as in CockroachDB, so that a key is a prefix of exactly those keys that begin with its
// elements. Desc is an addition. There are no nulls and no nested tuples: leave out the last elements instead, and the
// shorter key comes first.
//
// The encodings are promises: keys that are stored stay readable.
package keys
