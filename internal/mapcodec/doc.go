// Package mapcodec encodes and decodes the parts of a bucket's map, and searches decoded parts fast. The map records
// which partition holds which range of keys. Package partmap says what a map means.
//
// The parts are the root, the index nodes and the segments of a map. Their encodings have the same frame: a kind, a
// format version and a checksum. Unseal checks the frame, and returns a Decoder of the bytes inside. A Decoder keeps
// its first error, so a caller that decodes many fields checks for an error only once.
//
// Lists of ranges and lists of nodes are sorted by their lowest keys. Cuts is the decoded list of these keys, in which
// a search touches few cache lines and allocates nothing. A Segment also has the partition of each range, and an Index
// the id of the node below each key. Package mapclient keeps both in its cache.
//
// The package is pure: it does no I/O and does not use the time.
package mapcodec
