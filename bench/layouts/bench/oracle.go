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

// oracle is what a bucket holds, as sorted slices.
type oracle struct {
	keys, values [][]byte
}

// newOracle sorts entries; of one key the last one counts.
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

// at is the place of the first key that is not below key.
func (o *oracle) at(key []byte) int {
	return sort.Search(len(o.keys), func(i int) bool { return bytes.Compare(o.keys[i], key) >= 0 })
}

// list answers a query.
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

// check compares a page with what it should be.
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

// complete compares all that a scan found, page by page, in any order.
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

// pages collects what a scan hands out, as it comes. It keeps the pages themselves:
// nothing is copied in the time that is measured.
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
