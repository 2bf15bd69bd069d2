package commontime

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/store"
)

// busy is a server whose answers take the given times, the last one for ever.
type busy struct {
	takes []time.Duration
	asked int
}

func (b *busy) Servers(context.Context) ([]store.Server, error) { return nil, nil }

func (b *busy) Time(context.Context, string) (time.Time, error) {
	took := b.takes[min(b.asked, len(b.takes)-1)]
	b.asked++
	time.Sleep(took / 2)
	defer time.Sleep(took / 2)
	return time.Now().Truncate(Resolution), nil
}

// TestLooks: a look at an idle server tells its clock to two round trips, in a few questions. At a busy one it goes on
// until an answer is quick, and not for ever where none is. A server of another data centre is asked until it has
// answered three times, and once after that.
func TestLooks(t *testing.T) {
	const quick, late = 50 * time.Microsecond, 3 * time.Millisecond
	for _, c := range []struct {
		what        string
		far         bool
		takes       []time.Duration
		better      bool
		least, most int // questions
		width       time.Duration
	}{
		{"idle", false, []time.Duration{quick}, true, 3, 7, 2 * quick},
		{"busy, then idle", false, []time.Duration{late, late, late, late, late, quick}, true, 6, 14, 2 * quick},
		{"busy", false, []time.Duration{late}, true, patient, patient, 5 * time.Millisecond},
		{"far", true, []time.Duration{quick}, true, 2, 2, 2 * time.Millisecond},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &busy{takes: []time.Duration{time.Millisecond}}
				clock, err := New(server, Options{})
				require.NoError(t, err)
				defer clock.Close()
				s, a := store.Server{Name: "a", Near: !c.far}, &answer{}
				clock.ask(&s, a)
				time.Sleep(3 * time.Second) // the interval widens by 1.2 ms
				server.takes, server.asked = c.takes, 0
				require.Equal(t, c.better, clock.look(&s, a, patient))
				require.GreaterOrEqual(t, server.asked, c.least)
				require.LessOrEqual(t, server.asked, c.most)
				require.Less(t, a.width(), c.width)
				if c.far {
					clock.look(&s, a, patient)
					require.Equal(t, c.most+1, server.asked)
				}
			})
		})
	}
}

// TestLateTimers: timers that are always late, as those of Linux are, keep no question from the tick.
func TestLateTimers(t *testing.T) {
	const quick = 50 * time.Microsecond
	for _, late := range []time.Duration{0, 60 * time.Microsecond, 300 * time.Microsecond} {
		t.Run(late.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &busy{takes: []time.Duration{quick}}
				clock, err := New(server, Options{})
				require.NoError(t, err)
				defer clock.Close()
				clock.sleep = func(ctx context.Context, d time.Duration) error {
					return wait.Sleep(ctx, d+late+rand.N(20*time.Microsecond))
				}
				s, a := store.Server{Name: "a", Near: true}, &answer{}
				for i := range 20 {
					time.Sleep(time.Second)
					server.asked = 0
					clock.look(&s, a, patient)
					if i >= 10 {
						require.Less(t, a.width(), 2*quick)
						require.Less(t, server.asked, patient)
					}
				}
			})
		})
	}
}

// TestPace: looks are frequent while writes wait and looks help, and seldom otherwise.
func TestPace(t *testing.T) {
	waits := int64(0)
	p := pace{pause: slowest}
	next := func(wait int64, better bool) time.Duration {
		waits += wait
		pause, _ := p.next(waits, better, quickest)
		return pause
	}
	const many = 400 // so that as many wait as a look is for
	require.Equal(t, slowest, next(0, true), "nobody waits")
	require.Equal(t, quickest, next(many, true), "some wait")
	require.Equal(t, 2*quickest, next(many, false), "they wait, but the last look did not help")
	require.Equal(t, 4*quickest, next(many, false))
	require.Equal(t, quickest, next(many, true), "it helps again")
	require.Equal(t, quickest*3/2, next(0, true))
	require.Equal(t, quickest*9/4, next(0, false), "nobody waits: more seldom by and by")
	least := func(wait int64, least time.Duration) (time.Duration, int) {
		waits += wait
		return p.next(waits, true, least)
	}
	pause, patience := least(many, 3*quickest)
	require.Equal(t, 3*quickest, pause, "more servers or processes, fewer looks of each")
	require.Equal(t, patient, patience)
	p.pause = quickest
	require.Equal(t, 2*quickest, next(perLook/2, true), "a look is for many that wait")
	require.Equal(t, quickest, next(2*perLook, true))
	for range 20 {
		next(many, false)
	}
	require.Equal(t, slowest, p.pause, "never more seldom than that")
	pause, patience = least(0, 3*slowest)
	require.Equal(t, 3*slowest, pause, "but for very many processes")
	require.Equal(t, resting, patience)
	pause, patience = least(many, 3*slowest)
	require.Equal(t, 3*slowest, pause)
	require.Equal(t, patient, patience, "writes wait")
}

// TestLeastPause: the looks of all processes at a server have a bound, whatever their number.
func TestLeastPause(t *testing.T) {
	clock, err := New(&busy{}, Options{})
	require.NoError(t, err)
	defer clock.Close()
	least := func(servers, processes int) time.Duration {
		clock.servers = make([]store.Server, servers)
		clock.SharedBy(processes)
		return clock.leastPause()
	}
	require.Equal(t, quickest, least(1, 0), "their number is not known")
	require.Equal(t, quickest, least(1, 5))
	require.Equal(t, 6*perProcess, least(1, 6))
	require.Equal(t, 17*perServer, least(17, 6))
	require.Equal(t, 1000*perProcess, least(17, 1000))
	require.Equal(t, rarest, least(17, 1_000_000))
}
