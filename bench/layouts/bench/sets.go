package bench

import (
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/bench/layouts"
	"github.com/evenkeel/evenkeel/internal/test/realkeys"
)

// set is a kind of keys to measure with, e.g. paths of files or md5 sums, and how to make such keys.
type set struct {
	name, what string
	// share is the number of entries of the set, as a share of the number of keys that the options ask for.
	share float64
	make  func(r *rand.Rand, n int) [][]byte // in the order in which they come
	feed  bool                               // the keys are Snowflake ids
	// overwritten is true if keys occur many times. The set is then written by single puts, in parts, and is read
	// before any file is compacted.
	overwritten bool
}

// Names of the sets of keys.
const (
	setReal  = "real"
	setPaths = "paths"
	setTenth = "paths-tenth"
	setMD5   = "md5"
	setFeed  = "feed"
	// setAppend has keys in ascending order, so each new key is appended behind all others.
	setAppend = "append"
)

// topFolders is the number of common prefixes up to the first slash that the set of paths has.
const topFolders = 1000

func paths(r *rand.Rand, n int) [][]byte {
	keys := make([][]byte, n)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "customer-%04d/%02d/photo-%08d.jpg", i%topFolders, r.IntN(30), i)
	}
	return keys
}

// sets returns all sets of keys. The first set is the main set, with which everything is measured.
func sets() []set {
	begin := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	return []set{
		{name: setReal, what: "the paths of this machine's files, and names as object stores see them", share: 1,
			make: func(_ *rand.Rand, n int) [][]byte { return realkeys.Collect(n, 1) }},
		{name: setPaths, what: "customer-NNNN/NN/photo-NNNNNNNN.jpg: 1,000 customers", share: 5, make: paths},
		{name: setTenth, what: "the same 1,000 customers with a tenth of the keys", share: 0.5, make: paths},
		{name: setMD5, what: "hexadecimal md5 sums", share: 0.25, make: func(_ *rand.Rand, n int) [][]byte {
			keys := make([][]byte, n)
			for i := range keys {
				sum := md5.Sum(fmt.Append(nil, i))
				keys[i] = []byte(hex.EncodeToString(sum[:]))
			}
			return keys
		}},
		{name: "alike30", what: "30 bytes that are the same in all keys, then 16 that are random", share: 0.25,
			make: func(r *rand.Rand, n int) [][]byte {
				keys := make([][]byte, n)
				for i := range keys {
					keys[i] = fmt.Appendf(nil, "%s%016x", strings.Repeat("backup/", 5)[:30], r.Uint64())
				}
				return keys
			}},
		{name: setAppend, what: "numbers that go up by one", share: 0.25, make: func(_ *rand.Rand, n int) [][]byte {
			keys := make([][]byte, n)
			for i := range keys {
				keys[i] = fmt.Appendf(nil, "order-%012d", i)
			}
			return keys
		}},
		{name: "dates", what: "yyyy/mm/dd/hh/ of 30 days, then 8 bytes that are random", share: 0.25,
			make: func(r *rand.Rand, n int) [][]byte {
				keys := make([][]byte, n)
				for i := range keys {
					at := begin.Add(time.Duration(i) * 30 * 24 * time.Hour / time.Duration(n))
					keys[i] = fmt.Appendf(nil, "%s%08x", at.Format("2006/01/02/15/"), r.Uint32())
				}
				return keys
			}},
		{name: "zipf", what: "a tenth as many keys as writes, by Zipf's law (s = 1.1): each write is a put of its own, by 64 workers, over what was put before, in three parts that each went to files before the next; on Cassandra nothing is compacted before it is read, in PostgreSQL nothing vacuumed by hand, and Pebble does as it likes", share: 0.25, overwritten: true, make: func(r *rand.Rand, n int) [][]byte {
			z := rand.NewZipf(r, 1.1, 1, uint64(max(n/10, 1)))
			keys := make([][]byte, n)
			for i := range keys {
				keys[i] = fmt.Appendf(nil, "session/%08x", uint32(z.Uint64())*2654435761) // spread over the space
			}
			return keys
		}},
		{name: setFeed, what: "Snowflake ids of 60 days: a third of the days empty, one with 40 % of all", share: 0.5,
			feed: true, make: feedKeys},
	}
}

// feedKeys returns n Snowflake ids in ascending order, from 60 days. A third of the days have no id, and one day has 40
// % of all ids.
func feedKeys(r *rand.Rand, n int) [][]byte {
	const days, busy = 60, 50
	at := make([]time.Duration, n)
	for i := range at {
		day := r.IntN(days)
		for day%3 == 1 {
			day = r.IntN(days)
		}
		if r.IntN(10) < 4 {
			day = busy
		}
		at[i] = time.Duration(day)*24*time.Hour + time.Duration(r.Int64N(int64(24*time.Hour)))
	}
	slices.Sort(at)
	g, err := layouts.NewGenerator(1, 1)
	if err != nil {
		panic(err) // its numbers are constants
	}
	keys := make([][]byte, n)
	for i, d := range at {
		id, err := g.Next(layouts.Epoch.AddDate(2, 0, 0).Add(d))
		if err != nil {
			panic(err) // the times are constants
		}
		keys[i] = id.Key()
	}
	return keys
}

// valueOf returns a value that looks like the metadata of an object. The value depends on the key and on the number of
// the write, so that a wrong value is noticed.
func valueOf(key []byte, write int) []byte {
	sum := crc32.ChecksumIEEE(key)
	return fmt.Appendf(nil, `{"size":%d,"etag":"9e107d9d372bb6826bd81d35%08x","modified":%d,"type":"image/jpeg"}`,
		sum%1_000_000, sum, 1_700_000_000+write)
}

// entries returns the entries of the set, in the order in which they are written. keys is the number of keys of the
// main set.
func (s *set) entries(keys int) []layouts.Entry {
	n := max(int(s.share*float64(keys)), 100)
	made := s.make(rand.New(rand.NewPCG(1, 2)), n)
	out := make([]layouts.Entry, len(made))
	for i, k := range made {
		out[i] = layouts.Entry{Key: k, Value: valueOf(k, i)}
	}
	return out
}
