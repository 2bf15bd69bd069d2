package s3api

import (
	"fmt"
	"net/http"
	"sync"
	"time"
)

const (
	// cutsHours is how many times the cuts of one request an asker may make in an hour.
	cutsHours = 10
	// mostCounts bounds the askers that are counted.
	mostCounts = 10_000
)

// cutCounts counts the cuts that each asker has made in the last hour: each range costs time
// when the bucket is listed or deleted. The zero value is ready for use.
type cutCounts struct {
	mu sync.Mutex
	by map[asker]cutCount
}

// cutCount is a leaky bucket: in an hour it shrinks by an hour's allowance.
type cutCount struct {
	n  float64
	at time.Time
}

func (c cutCount) left(now time.Time, allowance float64) float64 {
	return max(c.n-allowance*now.Sub(c.at).Hours(), 0)
}

// take counts n more cuts, or refuses them.
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
