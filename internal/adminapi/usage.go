package adminapi

import (
	"bytes"
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/store"
)

// Usage says how the rows and the load of a bucket are distributed over prefixes of its keys. It has one level of
// prefixes, like one directory of a file system. All figures are estimates.
type Usage struct {
	Bucket    string  `json:"bucket"`
	Prefix    Key     `json:"prefix"`
	Delimiter string  `json:"delimiter"`
	Rows      float64 `json:"rows"`
	Bytes     float64 `json:"bytes"`
	Writes    float64 `json:"writes_per_s"`
	Reads     float64 `json:"reads_per_s"`
	// Sampled is the number of ranges with keys of several prefixes that were divided among the prefixes, by a sample
	// of their keys. Unsampled is the number of such ranges that were not divided; each counts for the prefix of its
	// start.
	Sampled   int      `json:"sampled"`
	Unsampled int      `json:"unsampled"`
	Prefixes  []Prefix `json:"prefixes"`
	// Others sums up the prefixes that Prefixes leaves out because they have the fewest rows. It is absent if all
	// prefixes are listed.
	Others *OtherPrefixes `json:"others,omitempty"`
}

// Prefix holds the estimated number of rows, size in bytes and load of all keys that begin with a prefix, e.g. photos/.
type Prefix struct {
	Prefix Key     `json:"prefix"`
	Rows   float64 `json:"rows"`
	Bytes  float64 `json:"bytes"`
	Writes float64 `json:"writes_per_s"`
	Reads  float64 `json:"reads_per_s"`
	// More is true if the prefix ends with the delimiter, so that a request for the prefix shows the level below, as a
	// directory does.
	More bool `json:"more"`
}

// OtherPrefixes holds the number and the sums of the prefixes that a list leaves out because they have the fewest rows.
type OtherPrefixes struct {
	Prefixes int     `json:"prefixes"`
	Rows     float64 `json:"rows"`
	Bytes    float64 `json:"bytes"`
}

const (
	prefixesShown = 200
	// mostSampled is the largest number of ranges whose samples of keys are read for one answer. mostPrefixes is the
	// largest number of prefixes in memory; further ones are only summed up.
	mostSampled  = 500
	mostPrefixes = 10_000
)

func (h *handler) usage(r *http.Request) (any, error) {
	q := paramsOf(r)
	prefix, delimiter := q.Get("prefix"), cmp.Or(q.Get("delimiter"), "/")
	name, id, err := h.asked(r, q)
	if err != nil {
		return nil, err
	}
	out := Usage{Bucket: name, Prefix: Key(prefix), Delimiter: delimiter}
	u := levels{prefix: prefix, delimiter: delimiter, all: map[string]*Prefix{}}
	u.end = string(store.PrefixEnd([]byte(prefix)))
	type straddling struct {
		balancer.Seen
		quanta []counter.Quantum
	}
	var open []straddling
	_, err = h.Balancer().Look(r.Context(), id, []byte(prefix), func(x balancer.Seen) error {
		if u.end != "" && string(x.Start) >= u.end {
			return balancer.ErrEnough
		}
		if u.alone(x.Start, x.End) {
			u.add(u.of(x.Start), &x, 1)
			return nil
		}
		if len(open) < mostSampled && h.o.Counts != nil {
			x.Start, x.End = bytes.Clone(x.Start), bytes.Clone(x.End)
			open = append(open, straddling{Seen: x})
			return nil
		}
		out.Unsampled++
		u.add(u.of(x.Start), &x, 1)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i := range open {
		x := &open[i]
		if x.quanta, err = h.o.Counts.Quanta(r.Context(), store.Partition{Bucket: id, ID: x.Place.WriteTo()}); err != nil {
			return nil, err
		}
		out.Sampled++
		u.share(&x.Seen, x.quanta)
	}
	list := make([]Prefix, 0, len(u.all))
	for _, p := range u.all {
		out.Rows, out.Bytes, out.Writes, out.Reads = out.Rows+p.Rows, out.Bytes+p.Bytes, out.Writes+p.Writes, out.Reads+p.Reads
		list = append(list, *p)
	}
	slices.SortFunc(list, func(a, b Prefix) int {
		return cmp.Or(cmp.Compare(b.Rows, a.Rows), bytes.Compare(a.Prefix, b.Prefix))
	})
	if len(list) > prefixesShown {
		out.Others = &OtherPrefixes{Prefixes: len(list) - prefixesShown + u.dropped}
		for _, p := range list[prefixesShown:] {
			out.Others.Rows, out.Others.Bytes = out.Others.Rows+p.Rows, out.Others.Bytes+p.Bytes
		}
		list = list[:prefixesShown]
	}
	slices.SortFunc(list, func(a, b Prefix) int { return bytes.Compare(a.Prefix, b.Prefix) })
	out.Prefixes = list
	return out, nil
}

// levels adds up the rows and the load of the keys that begin with a prefix, by group. The keys of a group are equal up
// to the next delimiter behind the prefix, as in a listing of a directory: e.g. photos/a/ and photos/b/ are the groups
// of the prefix photos/.
type levels struct {
	prefix, end, delimiter string
	all                    map[string]*Prefix
	dropped                int
}

// of returns the name of the group of a key. The name is the key up to and including the next delimiter behind the
// prefix, or the whole key if it has no such delimiter. If the key does not begin with the prefix, the result is the
// prefix.
func (u *levels) of(key []byte) string {
	k := string(key)
	if !strings.HasPrefix(k, u.prefix) {
		return u.prefix
	}
	if i := strings.Index(k[len(u.prefix):], u.delimiter); i >= 0 {
		return k[:len(u.prefix)+i+len(u.delimiter)]
	}
	return k
}

// alone reports whether all keys from start to end belong to the same group, whose name ends with the delimiter. The
// range with these keys then need not be divided among groups.
func (u *levels) alone(start, end []byte) bool {
	p := u.of(start)
	if !strings.HasSuffix(p, u.delimiter) || len(p) == len(u.prefix) {
		return false
	}
	above := store.PrefixEnd([]byte(p))
	return above == nil || len(end) > 0 && bytes.Compare(end, above) <= 0
}

// add adds a share of the rows and the load of the range x to the group with the given prefix. share is a fraction,
// from 0 to 1.
func (u *levels) add(prefix string, x *balancer.Seen, share float64) {
	p := u.all[prefix]
	if p == nil {
		if len(u.all) >= mostPrefixes {
			u.dropped++
			prefix = "" // such prefixes are only shown as a part of Others
			if p = u.all[prefix]; p == nil {
				p = &Prefix{}
				u.all[prefix] = p
			}
		} else {
			p = &Prefix{Prefix: Key(prefix), More: strings.HasSuffix(prefix, u.delimiter) && prefix != u.prefix}
			u.all[prefix] = p
		}
	}
	s := &x.Stats
	p.Rows, p.Bytes = p.Rows+share*float64(s.Rows), p.Bytes+share*float64(s.Bytes)
	p.Writes, p.Reads = p.Writes+share*(s.PutsPerS+s.DeletesPerS), p.Reads+share*s.ReadsPerS
}

// share divides the rows and the load of the range x among the groups of its keys. quanta is a sample of the keys, each
// with the number of rows for which it stands.
func (u *levels) share(x *balancer.Seen, quanta []counter.Quantum) {
	rows, of := 0.0, map[string]float64{}
	for i, q := range quanta {
		key := q.Key
		if i == 0 && len(quanta) > 1 {
			key = quanta[1].Key // the first quantum begins with the range and ends at this key
		}
		if bytes.Compare(key, x.Start) < 0 || len(x.End) > 0 && bytes.Compare(key, x.End) >= 0 {
			continue // the key is from before the range was cut
		}
		rows += float64(q.Rows)
		if strings.HasPrefix(string(key), u.prefix) {
			of[u.of(key)] += float64(q.Rows)
		}
	}
	if rows == 0 {
		if strings.HasPrefix(string(x.Start), u.prefix) {
			u.add(u.of(x.Start), x, 1)
		}
		return
	}
	for prefix, n := range of {
		u.add(prefix, x, n/rows)
	}
}
