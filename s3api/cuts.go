package s3api

import (
	"fmt"
	"net/http"
	"sync"
	"time"
)

const (
	// cutsHours is a factor: one client may make cutsHours times Options.MaxCuts cuts in an hour. A cut is a key at
	// which a new bucket is divided into ranges.
	cutsHours = 10
	// mostCounts is the largest number of clients whose cuts are counted at a time.
	mostCounts = 10_000
)

// cutCounts limits how many cuts each client may make in an hour. A cut is a key at which a new bucket is divided. It
// makes one more range, which costs time whenever the bucket is listed or deleted. A client is an access key or, on a
// server without access keys, a network address. The zero value is ready for use.
type cutCounts struct {
	mu sync.Mutex
	by map[asker]cutCount
}

// cutCount is the number of one client's recent cuts, which are keys at which the client has divided new buckets. It
// works like a leaky bucket: n is the count at the time at, and from then on the count shrinks by the hourly allowance
// in each hour.
type cutCount struct {
	n  float64
	at time.Time
}

// left returns how many of a client's recent cuts still count at the time now. Each hour the number shrinks by
// allowance.
func (c cutCount) left(now time.Time, allowance float64) float64 {
	return max(c.n-allowance*now.Sub(c.at).Hours(), 0)
}

// take adds n cuts, keys at which a new bucket is divided, to the count of the client a. The parameter `now` is the
// time. take adds nothing and returns an error if
//   - the count would exceed allowance, the number of cuts per hour, or
//   - too many other clients are being counted.
func (c *cutCounts) take(a asker, n int, allowance float64, now time.Time) *Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	sum := c.by[a].left(now, allowance) + float64(n)
	if sum > allowance {
		wait := time.Duration((sum - allowance) / allowance * float64(time.Hour))
		e := slowDown(nil, fmt.Sprintf("Buckets with more than %.0f cuts in an hour were asked for. "+
			"Create the bucket with fewer cuts, or later.", allowance))
		e.RetryAfter = int(wait.Seconds()) + 1
		return e
	}
	if len(c.by) >= mostCounts || c.by == nil {
		kept := map[asker]cutCount{}
		for other, count := range c.by {
			if count.left(now, allowance) > 0 {
				kept[other] = count
			}
		}
		c.by = kept
	}
	if _, known := c.by[a]; !known && len(c.by) >= mostCounts {
		return slowDown(nil, "Too many clients create buckets with cuts. "+
			"Please create the bucket without cuts, or later.")
	}
	c.by[a] = cutCount{sum, now}
	return nil
}

func tooManyCuts(most int) *Error {
	return refuse(http.StatusBadRequest, "InvalidArgument",
		"The bucket has more than %d cuts: create it with fewer. "+
			"Ranges are cut as they grow, and rebalancer presplit cuts ahead.", most)
}
