package layouts

import (
	"encoding/binary"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/store"
)

// Snowflake is an id that contains the time of its creation: 1 sign bit, 41 bits of milliseconds since Epoch, 10 bits
// for the generator (5 for its data centre, 5 for its machine), and a sequence number of 12 bits. Ids sort by time.
type Snowflake int64

// Epoch is the time from which the milliseconds of ids count. 41 bits of milliseconds last until 2093.
var Epoch = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

const (
	sequenceBits  = 12
	generatorBits = 10
	milliBits     = 41
)

// Time returns the time at which the id was made, to the millisecond.
func (s Snowflake) Time() time.Time {
	return Epoch.Add(time.Duration(s>>(sequenceBits+generatorBits)) * time.Millisecond)
}

// Key returns the id as a key of eight bytes, big-endian, so that keys sort like ids.
func (s Snowflake) Key() []byte { return binary.BigEndian.AppendUint64(nil, uint64(s)) }

// SnowflakeOf returns the id that a key of eight bytes contains. Other keys are an error.
func SnowflakeOf(key []byte) (Snowflake, error) {
	if len(key) != 8 || key[0] >= 1<<7 {
		return 0, store.Errorf(store.InvalidArgument,
			"the key %x is no Snowflake id: 8 bytes, big-endian, the first bit 0", key)
	}
	return Snowflake(binary.BigEndian.Uint64(key)), nil
}

// Generator makes Snowflake ids. Each machine has a number of its own, so that ids of different machines differ.
// Generators are safe for concurrent use.
type Generator struct {
	number int64
	mu     sync.Mutex
	milli  int64
	seq    int64
}

// NewGenerator returns a generator of ids for a data centre and a machine. Both numbers are from 0 to 31.
func NewGenerator(dataCentre, machine int) (*Generator, error) {
	if dataCentre < 0 || dataCentre > 31 || machine < 0 || machine > 31 {
		return nil, store.Errorf(store.InvalidArgument, "data centre %d, machine %d: each is from 0 to 31", dataCentre,
			machine)
	}
	return &Generator{number: int64(dataCentre<<5 | machine), milli: -1}, nil
}

// Next returns a new id for the moment now. Ids always ascend. If the clock goes back, or if the 4,096 ids of a
// millisecond are used up, Next takes the next millisecond ahead of its time. Moments before Epoch, or more than 69
// years after, are an error.
func (g *Generator) Next(now time.Time) (Snowflake, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	milli := now.Sub(Epoch).Milliseconds()
	if now.Before(Epoch) || milli >= 1<<milliBits-1 {
		return 0, store.Errorf(store.InvalidArgument, "%v has no id: from %v on, for 69 years", now, Epoch)
	}
	if milli > g.milli {
		g.milli, g.seq = milli, 0
	} else if g.seq++; g.seq == 1<<sequenceBits {
		g.milli, g.seq = g.milli+1, 0
	}
	return Snowflake(g.milli<<(sequenceBits+generatorBits) | g.number<<sequenceBits | g.seq), nil
}
