package memstore

import (
	"bytes"
	"slices"

	"github.com/tidwall/btree"

	"github.com/evenkeel/evenkeel/store"
)

// A partition is the rows of one partition key and what has been removed of it.
// A row that a removal hides is dropped for good: whatever could become visible
// under its key later must be newer than the removal.
type partition struct {
	rows     btree.Map[string, version]
	removals []removal
}

// A version is what the last write of a key left: a value, or a tombstone.
type version struct {
	value []byte
	ts    store.Timestamp
	dead  bool
}

// A removal hides what is within its bounds and not newer than ts, for ever.
type removal struct {
	bounds store.Bounds
	ts     store.Timestamp
}

// beats is Cassandra's rule of two versions of one row: the newer one wins; at a
// tie a tombstone wins, and of two values the larger.
func (v version) beats(w version) bool {
	switch {
	case v.ts != w.ts:
		return v.ts > w.ts
	case v.dead || w.dead:
		return v.dead
	}
	return bytes.Compare(v.value, w.value) > 0
}

// write lets v win or lose against what the key has. v's memory is kept.
func (p *partition) write(key string, v version) {
	for _, r := range p.removals {
		if r.ts >= v.ts && within(key, r.bounds) {
			return
		}
	}
	if old, ok := p.rows.Get(key); ok && !v.beats(old) {
		return
	}
	p.rows.Set(key, v)
}

// get returns a key's visible version.
func (p *partition) get(key string) (version, bool) {
	v, ok := p.rows.Get(key)
	return v, ok && !v.dead
}

// remove drops what r hides and remembers r. r's memory is kept.
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

// covers reports whether whatever o hides is hidden by r too. It may say no
// where exclusive starts would allow a yes.
func (r removal) covers(o removal) bool {
	start := bytes.Compare(r.bounds.Start, o.bounds.Start)
	return r.ts >= o.ts &&
		(start < 0 || start == 0 && r.bounds.StartExclusive == o.bounds.StartExclusive || len(r.bounds.Start) == 0) &&
		(len(r.bounds.End) == 0 || len(o.bounds.End) > 0 && bytes.Compare(r.bounds.End, o.bounds.End) >= 0)
}

// walk visits what is stored within b, tombstones included, until visit says no.
func (p *partition) walk(b store.Bounds, reverse bool, visit func(key string, v version) bool) {
	step := func(key string, v version) bool {
		if !within(key, b) {
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

// within reports whether key lies in b.
func within(key string, b store.Bounds) bool {
	if len(b.Start) > 0 && (key < string(b.Start) || b.StartExclusive && key == string(b.Start)) {
		return false
	}
	return len(b.End) == 0 || key < string(b.End)
}
