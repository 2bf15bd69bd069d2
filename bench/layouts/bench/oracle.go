package bench

import (
	"bytes"
	"fmt"
	"slices"
	"sort"
	"sync"

	"github.com/evenkeel/evenkeel/bench/layouts"
	"github.com/evenkeel/evenkeel/store"
)

// oracle is the expected content of a bucket, as slices of keys and values sorted by key. Pages that a layout returns
// are compared with it.
type oracle struct {
	keys, values [][]byte
}

// newOracle returns the expected content of a bucket after all entries are written in order. The last entry of a key
// counts.
func newOracle(entries []layouts.Entry) *oracle {
	sorted := inOrder(entries)
	o := &oracle{}
	for i, e := range sorted {
		if i+1 < len(sorted) && bytes.Equal(e.Key, sorted[i+1].Key) {
			continue
		}
		o.keys, o.values = append(o.keys, e.Key), append(o.values, e.Value)
	}
	return o
}

// at returns the index of the first key of the oracle that is not below the parameter key.
func (o *oracle) at(key []byte) int {
	return sort.Search(len(o.keys), func(i int) bool { return bytes.Compare(o.keys[i], key) >= 0 })
}

// list returns the items that a layout must list for the query q, for comparison with what the layout lists.
func (o *oracle) list(q layouts.Query) (items []layouts.Item) {
	lo, hi := o.at(q.Prefix), len(o.keys)
	if end := store.PrefixEnd(q.Prefix); end != nil {
		hi = o.at(end)
	}
	switch {
	case len(q.After) == 0:
	case q.Reverse:
		hi = min(hi, o.at(q.After))
	default:
		lo = max(lo, o.at(append(bytes.Clone(q.After), 0)))
	}
	for lo < hi && len(items) < q.Limit {
		i := lo
		if q.Reverse {
			hi--
			i = hi
		} else {
			lo++
		}
		item := layouts.Item{Entry: layouts.Entry{Key: o.keys[i], Value: o.values[i]}}
		if at := bytes.Index(o.keys[i][len(q.Prefix):], q.Delimiter); len(q.Delimiter) > 0 && at >= 0 {
			p := o.keys[i][:len(q.Prefix)+at+len(q.Delimiter)]
			item = layouts.Item{Entry: layouts.Entry{Key: p}, CommonPrefix: true}
			if next := store.PrefixEnd(p); next != nil {
				lo = o.at(next)
			} else {
				lo = hi
			}
		}
		items = append(items, item)
	}
	return items
}

// check returns an error if got, the page that a layout returned for the query q, is not the right answer.
func (o *oracle) check(q layouts.Query, got []layouts.Item) error {
	want := o.list(q)
	if len(want) != len(got) {
		return fmt.Errorf("%v: %d items, not %d", q, len(got), len(want))
	}
	for i := range want {
		if !bytes.Equal(want[i].Key, got[i].Key) || !bytes.Equal(want[i].Value, got[i].Value) ||
			want[i].CommonPrefix != got[i].CommonPrefix {
			return fmt.Errorf("%v: item %d is %q = %q, not %q = %q", q, i, got[i].Key, got[i].Value, want[i].Key,
				want[i].Value)
		}
	}
	return nil
}

// complete returns an error if the pages of a scan, which may come in any order, do not hold exactly the expected
// entries.
func (o *oracle) complete(pages [][]layouts.Entry) error {
	pages = slices.DeleteFunc(pages, func(page []layouts.Entry) bool { return len(page) == 0 })
	// Pages of most layouts do not overlap: then this is all the sorting there is.
	slices.SortFunc(pages, func(a, b []layouts.Entry) int { return bytes.Compare(a[0].Key, b[0].Key) })
	found := slices.Concat(pages...)
	slices.SortFunc(found, func(a, b layouts.Entry) int { return bytes.Compare(a.Key, b.Key) })
	if len(found) != len(o.keys) {
		return fmt.Errorf("a scan found %d entries, not %d", len(found), len(o.keys))
	}
	for i, e := range found {
		if !bytes.Equal(e.Key, o.keys[i]) || !bytes.Equal(e.Value, o.values[i]) {
			return fmt.Errorf("a scan found %q = %q in place of %q = %q", e.Key, e.Value, o.keys[i], o.values[i])
		}
	}
	return nil
}

// pages collects the pages that a scan delivers. A pages value keeps the pages themselves, so nothing is copied during
// the measured time.
type pages struct {
	mu  sync.Mutex
	all [][]layouts.Entry
}

func (p *pages) add(page []layouts.Entry) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, page)
	return nil
}
