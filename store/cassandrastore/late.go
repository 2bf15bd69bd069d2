package cassandrastore

import (
	"sync/atomic"
	"time"
)

const (
	// hedgeLeast is the least time to wait for an answer before a request is sent a second time, however quick the
	// answers are. After a shorter time a second attempt would gain little, and a pause of any process would cause many
	// second attempts.
	hedgeLeast = 20 * time.Millisecond
	// lateSpan is the time over which answers are counted in order to decide which answers are late. lateSamples is the
	// least number of answers for that decision: of fewer answers one in a hundred is a matter of chance.
	lateSpan    = 10 * time.Second
	lateSamples = 500
	lateShare   = 100 // one answer of a hundred is late
)

// lateTimes are the upper bounds of the intervals of a histogram that counts answers by the time that they took. All
// bounds are below hedgeAfter, the longest wait before a slow request is sent a second time.
var lateTimes = func() (times [14]time.Duration) {
	at := float64(hedgeLeast)
	for i := range times {
		times[i] = time.Duration(at)
		at *= 1.2
	}
	return times
}()

// late tells from which time on an answer of Cassandra is late. It measures the times of answers, and takes the time
// below which 99 in 100 of the recent answers came. There is one late for each kind of operation, since reading a page
// takes longer than reading a row. A late is safe for concurrent use. The zero value has measured no answers yet.
type late struct {
	delay  atomic.Int64 // the time after which an answer is late, nanoseconds; 0: not known
	begun  atomic.Int64 // the time at which the present span began, Unix time in nanoseconds
	counts [len(lateTimes) + 1]atomic.Int64
}

// after returns how long to wait for the answer to a request before the request is sent a second time, to another node.
func (l *late) after() time.Duration {
	if d := l.delay.Load(); d != 0 {
		return time.Duration(d)
	}
	return hedgeAfter
}

// add counts an answer that arrived at the time now, in order to learn which answers are late. The parameter took is
// the time from the request to the answer.
func (l *late) add(took time.Duration, now time.Time) {
	i := 0
	for i < len(lateTimes) && took > lateTimes[i] {
		i++
	}
	l.counts[i].Add(1)
	begun := l.begun.Load()
	since := time.Duration(now.UnixNano() - begun)
	if since >= 0 && since < lateSpan || !l.begun.CompareAndSwap(begun, now.UnixNano()) {
		return
	}
	var counts [len(l.counts)]int64
	total := int64(0)
	for i := range counts {
		counts[i] = l.counts[i].Swap(0)
		total += counts[i]
	}
	if total < lateSamples || since >= 2*lateSpan { // too few, or from long ago
		l.delay.Store(0)
		return
	}
	delay := hedgeAfter
	for i, above := 0, total; i < len(lateTimes); i++ {
		if above -= counts[i]; above*lateShare <= total {
			delay = lateTimes[i]
			break
		}
	}
	l.delay.Store(int64(delay))
}
