package counter

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Asked is a key that was asked for: put, deleted or read, or from which on a page was read. Of a long key it is the
// beginning.
type Asked struct {
	Key []byte
	// At is when, in Unix milliseconds.
	At int64
}

const (
	// Of the requests of a partition between two flushes the first askedFrom are not sampled, so that quiet partitions
	// cost nothing; then one in about askedEvery, askedFlush at most.
	askedFrom  = 8
	askedEvery = 16
	askedFlush = 4
	// maxAskedKey is how much of a key is kept.
	maxAskedKey = 256
	// askedKept bounds the requests of a state. Each has the same chance to be among them, but for its age: after
	// askedFades it is a third of that.
	askedKept  = 64
	askedFades = 5 * time.Minute
	// askedBelow is the rate of requests per second below which none are kept.
	askedBelow = 10
)

// ask counts a request of a partition, and samples its key.
func (x *pending) ask(key []byte) {
	if x.skip--; x.skip > 0 || len(x.Asked) >= askedFlush {
		return
	}
	// A fixed step would see only one of two requests that alternate.
	x.lot = x.lot*6364136223846793005 + 1442695040888963407
	x.skip = 1 + int(x.lot>>33)%(2*askedEvery-1)
	x.Asked = append(x.Asked, slices.Clone(key[:min(len(key), maxAskedKey)]))
}

// asked is a request that a state keeps: those with the highest ranks.
type asked struct {
	Asked
	rank float64
}

// ask takes in the sampled requests of a delta. Of two requests one is kept rather than the other with the odds of their
// weights, which fade with their age (weighted sampling by exponential ranks): so neither the number of clients nor how
// many requests each has matters.
func (s *State) ask(d *Delta, at time.Time) {
	if s.putRate.get(at, fast)+s.deleteRate.get(at, fast)+s.readRate.get(at, fast) < askedBelow {
		s.asked = nil
		return
	}
	weight := float64(d.Puts+d.Deletes+d.Reads) / float64(max(1, len(d.Asked)))
	for i, key := range d.Asked {
		// The same batches give the same sample.
		h := xxhash.New()
		_, _ = h.Write(key)
		var e encoder
		e.Int(at.UnixMilli())
		e.Int(s.puts + s.deletes)
		e.Int(int64(i))
		_, _ = h.Write(e.B)
		u := (float64(h.Sum64()>>11) + 0.5) / (1 << 53)
		x := asked{
			Asked: Asked{Key: key, At: at.UnixMilli()},
			rank:  at.Sub(time.Unix(0, 0)).Seconds()/askedFades.Seconds() + math.Log(max(weight, 1)) - math.Log(-math.Log(u)),
		}
		if len(s.asked) < askedKept {
			s.asked = append(s.asked, x)
			continue
		}
		least := 0
		for k := range s.asked {
			if s.asked[k].rank < s.asked[least].rank {
				least = k
			}
		}
		if s.asked[least].rank < x.rank {
			s.asked[least] = x
		}
	}
}

// requests are the sampled requests, oldest first; none if the partition is hardly asked any more.
func (s *State) requests(st *Stats) (out []Asked) {
	if st.PutsPerS+st.DeletesPerS+st.ReadsPerS < askedBelow {
		return nil
	}
	for i := range s.asked {
		out = append(out, s.asked[i].Asked)
	}
	slices.SortStableFunc(out, func(a, b Asked) int { return cmp.Compare(a.At, b.At) })
	return out
}

func (e *encoder) asked(all []asked) {
	e.Uint(uint64(len(all)))
	for i := range all {
		e.Int(all[i].At)
		e.float(all[i].rank)
		e.Bytes(all[i].Key)
	}
}

func (d *decoder) asked() (all []asked) {
	for range d.Count(10) {
		all = append(all, asked{Asked: Asked{At: d.Int()}, rank: d.float()})
		all[len(all)-1].Key = d.bytes()
	}
	d.Bad = d.Bad || len(all) > askedKept
	return all
}
