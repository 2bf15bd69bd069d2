package policy

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/counter"
)

const (
	// lasts is the minimum age of the older half of a range's sampled requests when the range is split because of its
	// load. A load that is younger may be over before a split helps.
	lasts = 2 * time.Minute
	// fewestAsked is the minimum number of sampled requests of a range when the range is cut between the keys of its
	// requests.
	fewestAsked = 24
	// part is the aim for the load of each part of a split, as a share of the load that a range may take. The aim is
	// below 1, since the load is known to some percent only.
	part = 0.75
	// mostParts is the maximum number of parts into which one split because of load cuts a range.
	mostParts = 4
	// relief is the maximum share of the requests that the busiest part of a split may have. If the busiest part would
	// have a larger share, the split does not help and is not made.
	relief = 0.75
	// apart is the share of the load limits of a range above which two ranges are not merged. Their merged range would
	// soon be split again because of its load.
	apart = 0.5
)

// requests returns the total number of puts, deletes and reads per second of a range. s are the counters of the range.
func requests(s *counter.Stats) float64 { return s.PutsPerS + s.DeletesPerS + s.ReadsPerS }

// hot reports whether a load is at least the given share of the load that one range may take. load is in requests per
// second. The share is 1 for the whole limit.
func (j *judge) hot(load, share float64) bool {
	return j.LoadPerS > 0 && load >= share*j.LoadPerS && load >= share*j.LoadShare*j.traffic
}

// load returns the decision about range i if the range takes too many of its bucket's reads and writes. The decision is
// to split the range between the keys of its requests, to count the range exactly before the split, or to do nothing
// for a reason. The boolean result is false if the load is within the limit, or if too few requests are known.
func (j *judge) load(i int) (Decision, bool) {
	r := &j.Ranges[i]
	s := &r.Stats
	load := requests(s)
	if !j.hot(load, 1) {
		return Decision{}, false
	}
	text := fmt.Sprintf("%.0f reads and writes per second, %.0f %% of the bucket's", load, 100*load/j.traffic)
	switch {
	case s.Rows <= 1:
		return j.none(i, OneKey, "%s, but it is one key only", text), true
	case j.appended(s):
		return j.none(i, AtTail, "%s, but appends all go to one end: no cut divides them", text), true
	case r.Created.Add(j.Cool).After(j.Now):
		d := j.none(i, Cooling, "%s, but its partition was made less than %v ago", text, j.Cool)
		d.Until = utc(r.Created.Add(j.Cool))
		return d, true
	}
	keys := r.asked()
	if len(keys) < fewestAsked || j.Now.Sub(time.UnixMilli(s.Asked[len(s.Asked)/2].At)) < lasts {
		return Decision{}, false
	}
	limit := max(j.LoadShare*j.traffic, apart*j.LoadPerS)
	parts := max(2, min(mostParts, int(math.Ceil(load/(part*limit)))))
	if _, most := divide(keys, parts); most > relief {
		if key, n := popular(keys); float64(n) > relief*most*float64(len(keys)) {
			return j.none(i, Popular, "%s, but %.0f %% of them are for one key, %.60q", text,
				100*float64(n)/float64(len(keys)), key), true
		}
		return j.none(i, Undivided, "%s, but no key divides them", text), true
	}
	if !j.fresh(s) {
		return j.recount(i, Suspect, "%s", text), true
	}
	v := j.decision(Split, i, Load, "%s", text)
	v.Parts, v.Copies, v.Grown = parts, s.Rows-s.Rows/int64(parts), s.Rows
	return v, true
}

// asked returns the keys of the range's sampled requests, in ascending order. Sampled keys outside the range are left
// out: they come from a time at which the range was larger.
func (r *Range) asked() (keys [][]byte) {
	for i := range r.Stats.Asked {
		k := r.Stats.Asked[i].Key
		if bytes.Compare(k, r.Start) >= 0 && (len(r.End) == 0 || bytes.Compare(k, r.End) < 0) {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, bytes.Compare)
	return keys
}

// divide returns cuts that divide a range into parts with about equal numbers of requests. The parameter keys has one
// key for each sampled request, in ascending order, and parts is the wanted number of parts. There are fewer cuts if
// many requests are for the same key. The result most is the share of the requests (0 to 1) that the busiest part has.
func divide(keys [][]byte, parts int) (cuts [][]byte, most float64) {
	from := 0
	for p := 1; p < parts; p++ {
		want := len(keys) * p / parts
		// A cut must lie before the first request for some key. The two candidates are the key in the middle and the
		// next key.
		low, high := want, want
		for low > 0 && bytes.Equal(keys[low-1], keys[want]) {
			low--
		}
		for high < len(keys) && bytes.Equal(keys[high], keys[want]) {
			high++
		}
		at := low
		if high < len(keys) && high-want < want-low || low <= from {
			at = high
		}
		if at <= from || at >= len(keys) {
			continue
		}
		cuts = append(cuts, keys[at])
		most = max(most, float64(at-from)/float64(len(keys)))
		from = at
	}
	return cuts, max(most, float64(len(keys)-from)/float64(len(keys)))
}

// popular returns the key that occurs most often in keys, and the number n of its occurrences. keys has one key for
// each request, in ascending order.
func popular(keys [][]byte) (key []byte, n int) {
	for i := 0; i < len(keys); {
		k := i
		for k < len(keys) && bytes.Equal(keys[k], keys[i]) {
			k++
		}
		if k-i > n {
			key, n = keys[i], k-i
		}
		i = k
	}
	return key, n
}

// byLoad sets the keys at which the decision cuts range r, so that the parts have about equal numbers of requests. The
// part with the most rows stays in its partition.
func (d *Decision) byLoad(r *Range) {
	cuts, _ := divide(r.asked(), d.Parts)
	sizes := make([]int64, len(cuts)+1)
	for _, q := range r.Quanta {
		p, exact := slices.BinarySearchFunc(cuts, q.Key, bytes.Compare)
		if exact {
			p++
		}
		sizes[p] += q.Rows
	}
	d.Cuts, d.Stay = cuts, slices.Index(sizes, slices.Max(sizes))
	d.Copies = d.Rows - sizes[d.Stay]
}
