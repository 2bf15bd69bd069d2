package memstore

import (
	"slices"

	"github.com/tidwall/btree"

	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/store"
)

// A partition holds the rows of one partition key, and the deletions of intervals of keys (removals). A removal hides
// all rows of its interval up to a timestamp. Rows that a removal hides are dropped for good, as only newer rows can
// become visible under their keys.
type partition struct {
	rows     btree.Map[string, version]
	removals []removal
}

// A version is the stored state of one key: the value and the timestamp of the write that won. A nil value stands for a
// tombstone.
type version struct {
	value []byte
	ts    store.Timestamp
}

func (v version) dead() bool { return v.value == nil }

// A removal is the deletion of an interval of keys. It hides, for ever, every row within its bounds whose timestamp is
// ts or lower.
type removal struct {
	bounds store.Bounds
	ts     store.Timestamp
}

// write stores the version v (a value or a tombstone, with its timestamp) under key. It does nothing if the version
// that is already stored under the key wins, or if a removal (the deletion of an interval of keys) hides v. The
// partition keeps the memory of v.
func (p *partition) write(key string, v version) {
	for _, r := range p.removals {
		if r.ts >= v.ts && store.Within(key, r.bounds) {
			return
		}
	}
	if old, ok := p.rows.Get(key); ok && !store.Beats(v.ts, v.value, old.ts, old.value) {
		return
	}
	p.rows.Set(key, v)
}

// get returns the stored value of a key and its timestamp. The bool is false if the key was never written or is
// deleted.
func (p *partition) get(key string) (version, bool) {
	v, ok := p.rows.Get(key)
	return v, ok && !v.dead()
}

// remove deletes the rows that the removal r hides: those within the interval of keys r.bounds whose timestamps are at
// most r.ts. The partition also stores r, to hide old writes that arrive later. It keeps the memory of r.
func (p *partition) remove(r removal) {
	var hidden []string
	p.walk(r.bounds, false, func(key string, v version) bool {
		if v.ts <= r.ts {
			hidden = append(hidden, key)
		}
		return true
	})
	for _, key := range hidden {
		p.rows.Delete(key)
	}
	if slices.ContainsFunc(p.removals, func(old removal) bool { return old.covers(r) }) {
		return
	}
	p.removals = append(slices.DeleteFunc(p.removals, r.covers), r)
}

// covers reports whether the removal r hides everything that the removal o hides. A removal is the deletion of an
// interval of keys up to a timestamp. A removal that is covered need not be stored.
func (r removal) covers(o removal) bool { return r.ts >= o.ts && storekit.Covers(r.bounds, o.bounds) }

// walk calls visit for each key within the interval b, with the version (a value or a tombstone) that is stored under
// the key. The order is ascending, or descending if reverse is true. walk stops when visit returns false.
func (p *partition) walk(b store.Bounds, reverse bool, visit func(key string, v version) bool) {
	step := func(key string, v version) bool {
		if !store.Within(key, b) {
			// The walk may first meet a key that equals an exclusive bound: it skips that key and goes on.
			return key == string(b.Start) || key == string(b.End)
		}
		return visit(key, v)
	}
	switch {
	case !reverse:
		p.rows.Ascend(string(b.Start), step)
	case len(b.End) == 0:
		p.rows.Reverse(step)
	default:
		p.rows.Descend(string(b.End), step)
	}
}
