package cassandratest

import (
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Link is the way between two data centres that are apart: it carries IP packets between their
// networks, in order, and takes its time for each. Beyond lineBytes under way in one direction
// packets are lost, as at any router. A new Link has no length and loses nothing. Its methods are
// safe for concurrent use.
type Link struct {
	oneWay atomic.Int64 // nanoseconds
	cut    atomic.Bool
	loss   atomic.Int64 // packets of a million

	ends    [2]int // tun devices, non-blocking
	closing *os.File
	carries sync.WaitGroup
}

// lineBytes is what may be under way in one direction.
const lineBytes = 8 << 20

// SetDistance sets how long a packet and its answer take together. Packets that are under way
// keep their time, and later ones do not overtake them.
func (l *Link) SetDistance(roundTrip time.Duration) { l.oneWay.Store(int64(roundTrip / 2)) }

// SetLoss sets the share of packets that are lost by chance, from 0 to 1.
func (l *Link) SetLoss(share float64) { l.loss.Store(int64(share * million)) }

const million = 1_000_000

// Cut loses every packet without a word, also those that are under way, until Heal.
func (l *Link) Cut() { l.cut.Store(true) }

// Heal undoes Cut.
func (l *Link) Heal() { l.cut.Store(false) }

// loses reports whether a packet that comes in goes nowhere.
func (l *Link) loses() bool {
	loss := l.loss.Load()
	return l.cut.Load() || loss > 0 && rand.Int64N(million) < loss
}

// line is one direction of a link: packets in the order in which they came.
type line struct {
	packets []packet
	bytes   int
}

type packet struct {
	data []byte
	due  time.Time
}

// add takes a packet in, and copies it, unless too much is under way.
func (q *line) add(data []byte, due time.Time) {
	if q.bytes+len(data) > lineBytes {
		return
	}
	q.packets = append(q.packets, packet{append([]byte(nil), data...), due})
	q.bytes += len(data)
}

// wait is the time until the first packet is due; false: there is none.
func (q *line) wait(now time.Time) (time.Duration, bool) {
	if len(q.packets) == 0 {
		return 0, false
	}
	return max(0, q.packets[0].due.Sub(now)), true
}

// take returns the first packet if it is due.
func (q *line) take(now time.Time) ([]byte, bool) {
	if len(q.packets) == 0 || q.packets[0].due.After(now) {
		return nil, false
	}
	data := q.packets[0].data
	q.packets[0] = packet{}
	q.packets = q.packets[1:]
	q.bytes -= len(data)
	return data, true
}
