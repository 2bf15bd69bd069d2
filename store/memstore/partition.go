package memstore

import (
	"slices"

	"github.com/tidwall/btree"

	"github.com/evenkeel/evenkeel/store"
)

// A partition holds the rows and removals of one partition key. A row that a removal
// hides is dropped for good: only newer rows can become visible under its key.
type partition struct {
	rows     btree.Map[string, version]
	removals []removal
}

// A version is what the winning write of a key left: a value, or a tombstone (nil).
type version struct {
	value []byte
	ts    store.Timestamp
}

func (v version) dead() bool { return v.value == nil }

// A removal hides every row within bounds up to ts, for ever.
type removal struct {
	bounds store.Bounds
	ts     store.Timestamp
}

// write stores v under key if it wins. It keeps the memory of v.
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

// get returns a key's visible version.
func (p *partition) get(key string) (version, bool) {
	v, ok := p.rows.Get(key)
	return v, ok && !v.dead()
}

// remove drops the rows that r hides and stores r. It keeps the memory of r.
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

// covers reports whether r hides everything that o hides.
func (r removal) covers(o removal) bool { return r.ts >= o.ts && r.bounds.Covers(o.bounds) }

// walk visits the versions within b, tombstones included, until visit returns false.
func (p *partition) walk(b store.Bounds, reverse bool, visit func(key string, v version) bool) {
	step := func(key string, v version) bool {
		if !store.Within(key, b) {
			// A bound may be met, and skipped, before there is more within.
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
