package counter

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Asked is the key of one sampled request to a partition: the key that was put, deleted or read, or the first key of a
// page that was read. Only the first 256 bytes of a long key are kept.
type Asked struct {
	Key []byte
	// At is the time of the request, in Unix milliseconds.
	At int64
}

const (
	// askedFrom is the number of requests to a partition, after each flush of counts, that are not sampled, so that
	// quiet partitions cost nothing. After them about one request in askedEvery is sampled, and at most askedFlush
	// requests per flush.
	askedFrom  = 8
	askedEvery = 16
	askedFlush = 4
	// maxAskedKey is the number of bytes that are kept of the key of a sampled request. The rest of a longer key is
	// dropped.
	maxAskedKey = 256
	// askedKept is the maximum number of sampled requests that are kept of a partition. The chance of a request to be
	// kept fades with its age: after each askedFades it falls to about a third (1/e).
	askedKept  = 64
	askedFades = 5 * time.Minute
	// askedBelow is the rate, in requests per second to a partition, below which no sampled requests are kept.
	askedBelow = 10
)

// ask samples the key of a request to a partition: of every 16th request on average, and of at most 4 requests in one
// flush interval. Most calls only count down to the next request to be sampled.
func (x *pending) ask(key []byte) {
	if x.skip--; x.skip > 0 || len(x.Asked) >= askedFlush {
		return
	}
	// A fixed step would see only one of two requests that alternate, so the step is random.
	x.lot = x.lot*6364136223846793005 + 1442695040888963407
	x.skip = 1 + int(x.lot>>33)%(2*askedEvery-1)
	x.Asked = append(x.Asked, slices.Clone(key[:min(len(key), maxAskedKey)]))
}

// asked is a sampled request (its key and time) with a random rank. Of each partition, the 64 requests with the highest
// ranks are kept.
type asked struct {
	Asked
	rank float64
}

// ask adds the sampled requests that one client has counted to those that are kept of the partition. The parameter d
// has the counts of the client, which end at the time `at`. If there are too many requests, old ones are dropped more
// likely than new ones. Of a partition with fewer than askedBelow requests per second, none are kept.
func (s *State) ask(d *Delta, at time.Time) {
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

// requests returns the sampled requests of the partition, oldest first. It returns nil if the estimates st show fewer
// than askedBelow requests per second to the partition.
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
