package layouts

import (
	"encoding/binary"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/store"
)

// Snowflake is an id that holds its time: 1 bit of sign, 41 bits of milliseconds
// since Epoch, 10 bits of generator (5 of its data centre, 5 of its machine), 12
// bits of sequence. Ids are ordered by time.
type Snowflake int64

// Epoch is where the milliseconds of ids begin: 41 bits last until 2093.
var Epoch = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

const (
	sequenceBits  = 12
	generatorBits = 10
	milliBits     = 41
)

// Time is when the id was made.
func (s Snowflake) Time() time.Time {
	return Epoch.Add(time.Duration(s>>(sequenceBits+generatorBits)) * time.Millisecond)
}

// Key is the id as a key whose order is the ids': eight bytes, big-endian.
func (s Snowflake) Key() []byte { return binary.BigEndian.AppendUint64(nil, uint64(s)) }

// SnowflakeOf is the id of a key.
func SnowflakeOf(key []byte) (Snowflake, error) {
	if len(key) != 8 || key[0] >= 1<<7 {
		return 0, store.Errorf(store.InvalidArgument,
			"the key %x is no Snowflake id: 8 bytes, big-endian, the first bit 0", key)
	}
	return Snowflake(binary.BigEndian.Uint64(key)), nil
}

// Generator makes ids; each machine has its own number. It is safe for concurrent
// use.
type Generator struct {
	number int64
	mu     sync.Mutex
	milli  int64
	seq    int64
}

// NewGenerator takes a data centre and a machine, 0 to 31 each.
func NewGenerator(dataCentre, machine int) (*Generator, error) {
	if dataCentre < 0 || dataCentre > 31 || machine < 0 || machine > 31 {
		return nil, store.Errorf(store.InvalidArgument, "data centre %d, machine %d: each is from 0 to 31", dataCentre,
			machine)
	}
	return &Generator{number: int64(dataCentre<<5 | machine), milli: -1}, nil
}

// Next makes the id of a moment. Ids ascend also where the clock does not: then,
// and when a millisecond's 4,096 are used up, the next millisecond is taken ahead
// of its time. Moments before Epoch or after its 69 years are refused.
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
