package cassandrastore

import (
	"sync/atomic"
	"time"
)

const (
	// hedgeLeast is the least time that an attempt goes on alone, however quick the others are: below it a second one
	// gains little, and a pause of any process makes many of them.
	hedgeLeast = 20 * time.Millisecond
	// lateSpan is the time over which answers are counted, and lateSamples how many of them say what is late: below
	// that one in a hundred is a matter of chance.
	lateSpan    = 10 * time.Second
	lateSamples = 500
	lateShare   = 100 // one answer of a hundred is late
)

// lateTimes are the bounds of the intervals into which the times of answers are divided, up to hedgeAfter.
var lateTimes = func() (times [14]time.Duration) {
	at := float64(hedgeLeast)
	for i := range times {
		times[i] = time.Duration(at)
		at *= 1.2
	}
	return times
}()

// late finds the time after which an answer is later than 99 in 100 of the last answers. A late counts the answers of
// one operation, as the answers to a slice take longer than those to a get. It is safe for concurrent use; the zero
// value knows nothing yet.
type late struct {
	delay  atomic.Int64 // 0: not known
	begun  atomic.Int64 // when the present span began, Unix time in nanoseconds
	counts [len(lateTimes) + 1]atomic.Int64
}

// after returns the time for which an attempt goes on alone.
func (l *late) after() time.Duration {
	if d := l.delay.Load(); d != 0 {
		return time.Duration(d)
	}
	return hedgeAfter
}

// add counts an answer that took the duration took and arrived at the time now.
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
