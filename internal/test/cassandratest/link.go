package cassandratest

import (
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Link is the network link between two data centres that are apart. It carries IP packets between their networks, in
// order, and delays each packet. If more than lineBytes are on their way in one direction, further packets are lost, as
// at any router. A new Link has no delay and loses nothing. The methods are safe for concurrent use.
type Link struct {
	oneWay atomic.Int64 // nanoseconds
	cut    atomic.Bool
	loss   atomic.Int64 // packets of a million

	ends    [2]int // tun devices, non-blocking
	closing *os.File
	carries sync.WaitGroup
}

// lineBytes is the largest number of bytes that can be on their way in one direction of a link.
const lineBytes = 8 << 20

// SetDistance sets the round trip time, which a packet and its answer take together. Packets that are already on their
// way keep their delay, and later packets do not overtake them.
func (l *Link) SetDistance(roundTrip time.Duration) { l.oneWay.Store(int64(roundTrip / 2)) }

// SetLoss sets the share of packets that are lost at random, from 0 to 1.
func (l *Link) SetLoss(share float64) { l.loss.Store(int64(share * million)) }

const million = 1_000_000

// Cut makes the link lose every packet, also those that are on their way, until Heal is called.
func (l *Link) Cut() { l.cut.Store(true) }

// Heal ends the effect of Cut.
func (l *Link) Heal() { l.cut.Store(false) }

// loses reports whether the link loses a packet that comes in now.
func (l *Link) loses() bool {
	loss := l.loss.Load()
	return l.cut.Load() || loss > 0 && rand.Int64N(million) < loss
}

// line is one direction of a link. It has the packets that are on their way, in the order in which they came.
type line struct {
	packets []packet
	bytes   int
}

type packet struct {
	data []byte
	due  time.Time
}

// add puts a copy of a packet on its way. due is the time at which the packet arrives. If too many bytes are on their
// way, the packet is lost.
func (q *line) add(data []byte, due time.Time) {
	if q.bytes+len(data) > lineBytes {
		return
	}
	q.packets = append(q.packets, packet{append([]byte(nil), data...), due})
	q.bytes += len(data)
}

// wait returns the time until the first packet arrives. The result is false if no packet is on its way.
func (q *line) wait(now time.Time) (time.Duration, bool) {
	if len(q.packets) == 0 {
		return 0, false
	}
	return max(0, q.packets[0].due.Sub(now)), true
}

// take removes and returns the first packet if it has arrived. The result is false if no packet has arrived.
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
