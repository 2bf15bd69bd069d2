package history

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"github.com/anishathalye/porcupine"
)

// highest checks the calls of one key by the rule HighestWins without a search. The result is the first read, by its
// end, that no order of the calls explains, or nil if all reads are explained.
//
// The register's timestamp only grows. So an order is known once each read has the write that it showed. An order
// exists if each read has a moment at which that write may have been the highest: not before the write began, and not
// after a write or an answer with a higher timestamp had ended. Some reads may have shown several writes (an absence,
// or a key without value). Such a read gets the lowest write that has such a moment, as a lower write never excludes
// more of the other reads. Whether a write has such a moment depends only on calls that ended before the read did, so
// the reads are checked in the order of their ends.
func highest(calls []porcupine.Operation) *porcupine.Operation {
	calls = slices.Clone(calls)
	slices.SortFunc(calls, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	var writes []porcupine.Operation
	for _, c := range calls {
		if c.Input != nil {
			writes = append(writes, c)
		}
	}
	slices.SortFunc(writes, func(a, b porcupine.Operation) int {
		return cmp.Compare(a.Input.(*Write).Low, b.Input.(*Write).Low)
	})
	first := porcupine.Operation{Input: (*Write)(nil), Call: math.MinInt64} // what every key begins with
	writes = slices.Insert(writes, 0, first)

	type floor struct {
		end int64
		by  *Write
	}
	var floors []floor // by end; each is the highest known of all calls up to that end
	above := func(a, b *Write) bool { return a != nil && (b == nil || a.Low > b.Low) }
	raise := func(end int64, w *Write) {
		if len(floors) == 0 || above(w, floors[len(floors)-1].by) {
			floors = append(floors, floor{end, w})
		}
	}
	known := func(at int64) *Write {
		i := sort.Search(len(floors), func(i int) bool { return floors[i].end >= at })
		if i == 0 {
			return nil
		}
		return floors[i-1].by
	}
	for i := range calls {
		c := &calls[i]
		if w, ok := c.Input.(*Write); ok {
			raise(c.Return, w)
			continue
		}
		at := slices.IndexFunc(writes, func(o porcupine.Operation) bool {
			w, moment := o.Input.(*Write), max(c.Call, o.Call)
			return c.Output.(answer).shows(w) && moment <= c.Return && !above(known(moment), w)
		})
		if at < 0 {
			return c
		}
		raise(c.Return, writes[at].Input.(*Write))
	}
	return nil
}
