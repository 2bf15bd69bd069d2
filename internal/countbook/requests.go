package countbook

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/keysample"
)

const (
	// askedKept is the maximum number of sampled requests that are kept of a partition. The chance of a request to be
	// kept fades with its age: after each askedFades it falls to about a third (1/e).
	askedKept  = 64
	askedFades = 5 * time.Minute
	// askedBelow is the rate, in requests per second to a partition, below which no sampled requests are kept.
	askedBelow = 10
)

// asked is a sampled request (its key and time) with a random rank. Of each partition, the 64 requests with the highest
// ranks are kept.
type asked struct {
	counter.Asked
	rank float64
}

// ask adds the sampled requests that one client has counted to those that are kept of the partition. The parameter d
// has the counts of the client, which end at the time `at`. If there are too many requests, old ones are dropped more
// likely than new ones. Of a partition with fewer than askedBelow requests per second, none are kept.
func (s *State) ask(d *counter.Delta, at time.Time) {
	// Each sampled request has a weight: the number of requests that it stands for, faded by its age. If only one of
	// two requests can stay, the odds are the ratio of their weights (weighted sampling by exponential ranks). So
	// neither the number of clients nor the number of requests of each client matters.
	if s.putRate.get(at, fast)+s.deleteRate.get(at, fast)+s.readRate.get(at, fast) < askedBelow {
		s.asked = nil
		return
	}
	weight := float64(d.Puts+d.Deletes+d.Reads) / float64(max(1, len(d.Asked)))
	for i, key := range d.Asked {
		// u is pseudorandom, but the same batches always give the same sample.
		h := xxhash.New()
		_, _ = h.Write(key)
		var e keysample.Encoder
		e.Int(at.UnixMilli())
		e.Int(s.puts + s.deletes)
		e.Int(int64(i))
		_, _ = h.Write(e.B)
		u := (float64(h.Sum64()>>11) + 0.5) / (1 << 53)
		x := asked{
			Asked: counter.Asked{Key: key, At: at.UnixMilli()},
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

// requests returns the sampled requests of the partition, oldest first. It returns nil if the estimates st show fewer
// than askedBelow requests per second to the partition.
func (s *State) requests(st *counter.Stats) (out []counter.Asked) {
	if st.PutsPerS+st.DeletesPerS+st.ReadsPerS < askedBelow {
		return nil
	}
	for i := range s.asked {
		out = append(out, s.asked[i].Asked)
	}
	slices.SortStableFunc(out, func(a, b counter.Asked) int { return cmp.Compare(a.At, b.At) })
	return out
}

// encodeAsked appends sampled requests to the encoding.
func encodeAsked(e *keysample.Encoder, all []asked) {
	e.Uint(uint64(len(all)))
	for i := range all {
		e.Int(all[i].At)
		e.Float(all[i].rank)
		e.Bytes(all[i].Key)
	}
}

// decodeAsked returns the next sampled requests in the encoding.
func decodeAsked(d *keysample.Decoder) (all []asked) {
	for range d.Count(10) {
		all = append(all, asked{Asked: counter.Asked{At: d.Int()}, rank: d.Float()})
		all[len(all)-1].Key = d.Bytes()
	}
	d.Bad = d.Bad || len(all) > askedKept
	return all
}
