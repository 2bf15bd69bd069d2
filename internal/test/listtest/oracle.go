package listtest

import (
	"bytes"
	"slices"
	"sort"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// state is what a test knows about a key: whether the key has an entry, and with which value.
type state struct {
	live  bool
	value string
	ts    store.Timestamp // no lower than that of the write behind it
}

// oracle is the expected content of a bucket, as a plain map of keys. The method list returns what a listing of that
// content must show, straight from the definition of a listing.
type oracle struct {
	keys map[string]state
}

func newOracle() *oracle { return &oracle{keys: map[string]state{}} }

func (o *oracle) put(key, value string, ts store.Timestamp) { o.keys[key] = state{true, value, ts} }

// sorted returns the keys that have entries, in order.
func (o *oracle) sorted() []string {
	var keys []string
	for k, s := range o.keys {
		if s.live {
			keys = append(keys, k)
		}
	}
	sort.Strings(keys)
	return keys
}

// line is one item of an expected listing: an entry or a common prefix.
type line struct {
	key, value string
	prefix     bool
}

// list returns what all pages of a listing together must show. The query q has no token.
func (o *oracle) list(q listing.Query) []line {
	var lines []line
	keys := o.sorted()
	if q.Reverse {
		slices.Reverse(keys)
	}
	for _, k := range keys {
		switch {
		case !bytes.HasPrefix([]byte(k), q.Prefix),
			k < string(q.From),
			len(q.To) > 0 && k >= string(q.To),
			len(q.After) > 0 && !q.Reverse && k <= string(q.After),
			len(q.After) > 0 && q.Reverse && k >= string(q.After):
			continue
		}
		l := line{key: k, value: o.keys[k].value}
		if len(q.Delimiter) > 0 {
			if _, behind, ok := bytes.Cut([]byte(k)[len(q.Prefix):], q.Delimiter); ok {
				l = line{key: k[:len(k)-len(behind)], prefix: true}
			}
		}
		if q.KeysOnly {
			l.value = ""
		}
		if n := len(lines); n == 0 || !l.prefix || lines[n-1] != l {
			lines = append(lines, l)
		}
	}
	return lines
}

func lineOf(item listing.Item) line {
	return line{key: string(item.Key), value: string(item.Value), prefix: item.CommonPrefix}
}
