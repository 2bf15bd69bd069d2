package commontime_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/commontime"
	"github.com/evenkeel/evenkeel/internal/test/race"
)

// load is what some processes ask and wait for that write all the time, so many rows per second in all: questions per
// second to each near server, and how long a write waits for its timestamp, on average. They have been running for
// a minute, so each relies on a majority of the servers.
func load(
	t *testing.T, c *cluster, processes, rows int, takes time.Duration,
) (questions float64, waits time.Duration) {
	t.Helper()
	const settle, span = 3 * time.Second, 5 * time.Second
	near := 0
	for _, s := range c.servers {
		if s.DataCentre == "dc0" {
			near++
		}
	}
	every := time.Duration(processes) * time.Second / time.Duration(rows)
	clocks := make([]*commontime.Clock, processes)
	for i := range clocks {
		clocks[i] = c.clock(t, "dc0", &machine{}, 0)
		clocks[i].SharedBy(processes)
	}
	for range 13 {
		for _, clock := range clocks {
			took(t, clock)
		}
		time.Sleep(5 * time.Second)
	}
	begun := time.Now()
	done := make(chan int)
	for i := range clocks {
		go func() {
			time.Sleep(every * time.Duration(i) / time.Duration(processes))
			n := 0
			var writing sync.WaitGroup
			for time.Since(begun) < settle+span {
				if time.Since(begun) >= settle {
					n++
				}
				writing.Go(func() {
					ts, err := clocks[i].Next(t.Context(), 1)
					if err != nil {
						t.Error(err)
						return
					}
					time.Sleep(takes)
					if err := clocks[i].Passed(t.Context(), ts); err != nil {
						t.Error(err)
					}
				})
				time.Sleep(every)
			}
			writing.Wait()
			done <- n
		}()
	}
	counts := func() (sum commontime.Counts) {
		for _, clock := range clocks {
			one := clock.Counts()
			sum.Answers += one.Answers
			sum.Waited += one.Waited
		}
		return sum
	}
	time.Sleep(settle)
	before := counts()
	writes := 0
	for range clocks {
		writes += <-done
	}
	after := counts()
	return float64(after.Answers-before.Answers) / span.Seconds() / float64(near),
		(after.Waited - before.Waited) / time.Duration(writes)
}

// TestQuestionsOfManyProcesses: what a server is asked depends on how much is written, not on how many processes write
// it. However much that is, the processes that share the servers keep to one bound. Where it is the clocks of another
// data centre for which writes wait, near servers are hardly asked.
//
// Without any of this, a server was asked 38,000 questions a second by 100 processes, and 24,000 with another data
// centre, and a write waited for 0.32 ms and 62.0 ms. By questions at any moment, not at ticks, one process and ten asked
// 440 and 4,200 a second, at the same waits. Without the bound 100 processes with 10,000 writes a second asked 15,700 a
// second at waits of 0.27 ms, and 300 with as many 28,600 at 0.30 ms.
func TestQuestionsOfManyProcesses(t *testing.T) {
	race.Skip(t)
	const way, ahead = 40 * time.Millisecond, 60 * time.Millisecond
	for _, x := range []struct {
		processes int
		rows      int // written in a second, by all
		far       bool
		questions float64       // at most
		waits     time.Duration // at most
	}{
		{1, 1000, false, 230, 350 * time.Microsecond},
		{10, 1000, false, 1800, 350 * time.Microsecond},
		{100, 1000, false, 4600, 500 * time.Microsecond},
		{100, 10_000, false, 6000, 450 * time.Microsecond},
		{1, 1000, true, 10, 63 * time.Millisecond},
		{100, 1000, true, 500, 63 * time.Millisecond},
	} {
		t.Run(fmt.Sprintf("%d processes, %d rows, another data centre: %v", x.processes, x.rows, x.far), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(3)
				if x.far {
					c = newCluster(3, 3)
					c.ways = [2][2]time.Duration{{0, way}, {way, 0}}
				}
				for i, s := range c.servers {
					s.delay, s.more = 100*time.Microsecond, 300*time.Microsecond
					s.offset = time.Duration(i) * 200 * time.Microsecond
					if s.DataCentre == "dc1" {
						s.offset += ahead
					}
				}
				questions, waits := load(t, c, x.processes, x.rows, 300*time.Microsecond)
				t.Logf("%.0f questions a second, a write waits %v", questions, waits)
				require.LessOrEqual(t, questions, x.questions)
				require.LessOrEqual(t, waits, x.waits)
			})
		})
	}
}
