// Package keys makes keys whose order as bytes is the order of what they are made of:
// tuples, numbers, times, ids of posts, newest first if need be.
//
//	key := keys.Of(keys.String("alice"), keys.Desc(keys.Int(id)))   // newest first
//	alice := keys.Of(keys.String("alice"))                          // the prefix of all hers
//
//	r := keys.Read(key)
//	user, id := r.String(), r.Int()
//	err := r.End()
//
// The encoding is that of FoundationDB's tuple layer (design/tuple.md in its repository) but
// for three things: strings end in one more byte, as in CockroachDB, so that a key is a prefix
// of exactly those keys that begin with its elements; Desc is an addition; there are no nulls
// and no nested tuples. Leave out the last elements instead: the shorter key comes first.
//
// The encodings are promises: keys that are stored stay readable.
package keys
