package commontime

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

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
	return time.Now().Truncate(store.TimeResolution), nil
}

// TestLooks: a look at an idle server tells its clock to some round trips. At a busy one it
// goes on until an answer is quick, and not for ever where none is. A server of another
// data centre is asked until it has answered three times, and once after that.
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
		{"idle", false, []time.Duration{quick}, true, 21, 45, 4 * quick},
		{"busy, then idle", false, []time.Duration{late, late, late, late, late, quick}, true, 6, 45,
			1100 * time.Microsecond},
		{"busy", false, []time.Duration{late}, false, mostQuestions, mostQuestions, 5 * time.Millisecond},
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
				require.Equal(t, c.better, clock.look(&s, a))
				require.GreaterOrEqual(t, server.asked, c.least)
				require.LessOrEqual(t, server.asked, c.most)
				require.Less(t, a.width(), c.width)
				if c.far {
					clock.look(&s, a)
					require.Equal(t, c.most+1, server.asked)
				}
			})
		})
	}
}

// TestPace: looks are frequent while writes wait and looks help, and seldom otherwise.
func TestPace(t *testing.T) {
	writes, waits := int64(0), int64(0)
	p := pace{pause: slowest}
	next := func(wait int64, better bool, servers int) time.Duration {
		const many = 10 // so that as many wait as a look is for
		writes, waits = writes+100*many, waits+wait*many
		return p.next(writes, waits, better, servers)
	}
	require.Equal(t, slowest, next(0, true, 1), "nobody waits")
	require.Equal(t, quick, next(20, true, 1), "one in five waits")
	require.Equal(t, quickest, next(21, true, 1), "more than one in five")
	require.Equal(t, quickest, next(20, true, 1), "some still wait")
	require.Equal(t, 2*quickest, next(100, false, 1), "they wait, but the last look did not help")
	require.Equal(t, 4*quickest, next(1, false, 1))
	require.Equal(t, quickest, next(100, true, 1), "it helps again")
	require.Equal(t, quickest*3/2, next(0, true, 1))
	require.Equal(t, quickest*9/4, next(0, false, 1), "nobody waits: more seldom by and by")
	require.Equal(t, 7*perServer, next(100, true, 7), "more servers, fewer looks at each")
	p.pause = quickest
	waits++
	require.Equal(t, 2*quickest, p.next(writes+1, waits, true, 1), "a look is for two that wait")
	waits += 4
	require.Equal(t, quickest, p.next(writes+4, waits, true, 1))
	for range 20 {
		next(100, false, 1)
	}
	require.Equal(t, slowest, p.pause, "never more seldom than that")
}
