package cassandrastore

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"
	"github.com/stretchr/testify/require"
)

// answers is a request of which each attempt takes some time and then has an outcome.
type answers struct {
	takes    []time.Duration
	fails    []error
	begun    atomic.Int32
	underWay atomic.Int32
}

// attempt returns the number of the attempt, from 1.
func (a *answers) attempt(ctx context.Context) (int, error) {
	n := int(a.begun.Add(1))
	a.underWay.Add(1)
	defer a.underWay.Add(-1)
	select {
	case <-time.After(a.takes[min(n, len(a.takes))-1]):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	if n <= len(a.fails) {
		return n, a.fails[n-1]
	}
	return n, nil
}

func TestSecondAttempts(t *testing.T) {
	const quickly, slowly, never = 10 * time.Millisecond, 400 * time.Millisecond, time.Hour
	away, refused := gocql.ErrConnectionClosed, gocql.ErrSessionClosed
	for name, c := range map[string]struct {
		takes   []time.Duration
		fails   []error
		alone   bool // not hedged
		says    int
		err     error
		took    time.Duration
		attempt int32
	}{
		"a quick one stays alone": {takes: []time.Duration{quickly}, says: 1, took: quickly, attempt: 1},
		"a slow one stays alone where it is not hedged": {
			takes: []time.Duration{slowly}, alone: true, says: 1, took: slowly, attempt: 1,
		},
		"one that hangs is overtaken": {
			takes: []time.Duration{never, quickly}, says: 2, took: hedgeAfter + quickly, attempt: 2,
		},
		"one that is slow wins, too": {takes: []time.Duration{slowly, never}, says: 1, took: slowly, attempt: 2},
		"a second one that fails does not count": {
			takes: []time.Duration{slowly, quickly}, fails: []error{nil, away}, says: 1, took: slowly, attempt: 2,
		},
		"a first one that fails waits for the second": {
			takes: []time.Duration{slowly, slowly}, fails: []error{away}, says: 2, took: hedgeAfter + slowly, attempt: 2,
		},
		"what is refused for good decides, from the first": {
			takes: []time.Duration{slowly, never}, fails: []error{refused}, err: refused, took: slowly, attempt: 2,
		},
		"what is refused for good decides, from the second": {
			takes: []time.Duration{never, quickly}, fails: []error{nil, refused}, err: refused,
			took: hedgeAfter + quickly, attempt: 2,
		},
		"both take no longer than one may": {
			takes: []time.Duration{never}, err: context.DeadlineExceeded, took: time.Second, attempt: 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, a := &database{o: Options{ReadTimeout: time.Hour}}, &answers{takes: c.takes, fails: c.fails}
				h := hedge[int]{s: s, request: request{limit: time.Second}, attempt: a.attempt}
				run := h.twice
				if c.alone {
					run = func(ctx context.Context, a *asking) (int, error) { return h.once(ctx, a, h.limit) }
				}
				begun := time.Now()
				n, err := run(t.Context(), &asking{})
				require.Equal(t, c.took, time.Since(begun))
				require.Equal(t, c.attempt, a.begun.Load())
				require.Zero(t, a.underWay.Load(), "no attempt goes on")
				if c.err != nil {
					require.ErrorIs(t, err, c.err)
					return
				}
				require.NoError(t, err)
				require.Equal(t, c.says, n)
			})
		})
	}
}

// A cluster in which everything is slow gets a tenth more requests, not twice as many.
func TestSecondAttemptsAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a := &database{o: Options{ReadTimeout: time.Hour}}, &answers{takes: []time.Duration{time.Second}}
		const rounds, atOnce = 20, 100
		for range rounds {
			var calls sync.WaitGroup
			for range atOnce {
				calls.Go(func() {
					_, err := retry(t.Context(), s, request{level: gocql.LocalQuorum, limit: time.Hour}, a.attempt)
					if err != nil {
						t.Error(err)
					}
				})
			}
			calls.Wait()
		}
		second := int(a.begun.Load()) - rounds*atOnce
		require.InDelta(t, hedgeBurst+rounds*atOnce/hedgeShare, second, hedgeBurst/10)
	})
}

// A node that does not answer is the last choice, but for one request now and then; when it answers it is one of all.
func TestSilentNodesAreAvoided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChosen("listings", "", "", slog.New(slog.DiscardHandler))
		for i, id := range []string{"a", "b", "c"} {
			h := (&gocql.HostInfo{}).SetConnectAddress(net.IPv4(127, 0, 0, byte(i+1)))
			h.SetHostID(id)
			c.AddHost(h)
		}
		order := func(a *asking) (ids []string) {
			next := c.order(a, c.turns.Pick(nil))
			for h := next(); h != nil; h = next() {
				ids = append(ids, h.Info().HostID())
			}
			return ids
		}
		first := func() map[string]int {
			count := map[string]int{}
			for range 30 {
				count[c.order(&asking{}, c.turns.Pick(nil))().Info().HostID()]++
			}
			return count
		}
		require.Equal(t, map[string]int{"a": 10, "b": 10, "c": 10}, first())

		hung := c.node("b")
		hung.asks()
		time.Sleep(hedgeAfter)
		hung.silent()
		require.Zero(t, first()["b"])
		for range 10 {
			ids := order(&asking{})
			require.Len(t, ids, 3)
			require.Equal(t, "b", ids[2])
		}
		time.Sleep(avoidFor)
		require.Equal(t, 1, first()["b"], "one request tries")
		require.Zero(t, first()["b"])
		hung.answers()
		require.Equal(t, map[string]int{"a": 10, "b": 10, "c": 10}, first())

		hung.asks()
		time.Sleep(hedgeAfter)
		hung.answers()
		hung.silent()
		require.Positive(t, first()["b"], "it has answered others meanwhile: the request is slow, not the node")

		// Second attempts begin soon and succeed, so that the first ones are given up before long.
		const soon = hedgeAfter / 10
		for i := range 11 {
			require.False(t, hung.avoid(), i)
			hung.asks()
			time.Sleep(soon)
			hung.silent()
		}
		require.True(t, hung.avoid(), "many short requests without an answer")
		hung.answers()
		for range 20 {
			hung.asks()
			time.Sleep(soon)
			hung.silent()
			time.Sleep(hedgeAfter)
		}
		require.False(t, hung.avoid(), "a few now and then")

		// What a call has asked already comes last, and for a second attempt not at all.
		for range 10 {
			a := &asking{asked: []*node{c.node("a")}}
			require.Equal(t, "a", order(a)[2])
			a.second = true
			require.ElementsMatch(t, []string{"b", "c"}, order(a))
		}
	})
}

func TestAnswersTellOfNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			err     error
			avoided bool
		}{
			"an answer":               {nil, false},
			"an error of the server":  {&gocql.RequestErrReadTimeout{}, false},
			"a time limit":            {context.DeadlineExceeded, true},
			"a limit of the driver's": {gocql.ErrTimeoutNoResponse, true},
			"a lost connection":       {errors.New("reset"), true},
		} {
			a := &asking{begun: time.Now()}
			a.goes(&node{HostInfo: &gocql.HostInfo{}, log: slog.New(slog.DiscardHandler)})
			time.Sleep(hedgeAfter)
			a.ended(c.err)
			require.Equal(t, c.avoided, a.node.Load().avoid(), name)
		}
	})
}

// How long an attempt goes on alone follows what 99 of 100 answers of the operation have taken of late, within bounds.
func TestWhatIsLate(t *testing.T) {
	var l late
	now := time.Unix(1, 0)
	// span lets answers come for longer than a span.
	span := func(n int, took func(i int) time.Duration) {
		for i := range n {
			now = now.Add((lateSpan + time.Second) / time.Duration(n))
			l.add(took(i), now)
		}
	}
	one := func(usual, rare time.Duration, every int) func(int) time.Duration {
		return func(i int) time.Duration {
			if i%every == 0 {
				return rare
			}
			return usual
		}
	}
	const usual, rare = 5 * time.Millisecond, 60 * time.Millisecond
	require.Equal(t, hedgeAfter, l.after(), "nothing is known")
	span(1000, one(usual, rare, 200))
	span(1000, one(usual, rare, 200))
	require.Equal(t, hedgeLeast, l.after(), "one in 200 is late")
	span(1000, one(usual, rare, 20))
	span(1000, one(usual, rare, 20))
	require.InDelta(t, rare, l.after(), float64(rare)/5, "one in 20 is slow, so that this is usual")
	span(1000, one(time.Second, time.Second, 20))
	span(1000, one(time.Second, time.Second, 20))
	require.Equal(t, hedgeAfter, l.after(), "never later than that")
	span(1000, one(usual, usual, 20))
	span(1000, one(usual, usual, 20))
	require.Equal(t, hedgeLeast, l.after())
	span(100, one(usual, usual, 20))
	span(100, one(usual, usual, 20))
	require.Equal(t, hedgeAfter, l.after(), "of a hundred answers the last hundredth is one")
	span(1000, one(usual, usual, 20))
	span(1000, one(usual, usual, 20))
	now = now.Add(time.Hour)
	l.add(usual, now)
	require.Equal(t, hedgeAfter, l.after(), "what was an hour ago")
}

// What is known of one operation moves its second attempts, and no others.
func TestSecondAttemptsComeWhenAnAnswerIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &database{o: Options{ReadTimeout: time.Hour}}
		get := request{op: opGet, level: gocql.LocalQuorum, limit: time.Hour}
		for range 1100 {
			_, err := retry(t.Context(), s, get, (&answers{takes: []time.Duration{10 * time.Millisecond}}).attempt)
			require.NoError(t, err)
		}
		took := func(r request) time.Duration {
			begun := time.Now()
			a := &answers{takes: []time.Duration{time.Hour, time.Millisecond}}
			n, err := retry(t.Context(), s, r, a.attempt)
			require.NoError(t, err)
			require.Equal(t, 2, n)
			return time.Since(begun)
		}
		require.Equal(t, hedgeLeast+time.Millisecond, took(get))
		slice := get
		slice.op = opSlice
		require.Equal(t, hedgeAfter+time.Millisecond, took(slice))
	})
}
