package s3api

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAskersTakeTurns: whoever asks for very many pages does not keep another one from
// the next turns.
func TestAskersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const turns = 4
		r := newRequests(1000, minMemory, turns)
		began := map[string]time.Duration{} // when the last turn of an asker began
		var mu sync.Mutex
		most, now := 0, 0
		start := time.Now()
		page := func(key string) {
			a := asker{key: key}
			m := held{of: r, asker: a, mine: r.enter(a)}
			defer m.release()
			require.NoError(t, m.takeTurn(t.Context()))
			mu.Lock()
			now++
			most, began[key] = max(most, now), time.Since(start)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			now--
			mu.Unlock()
			m.endTurn()
			m.endTurn() // once is enough
		}
		for range 300 {
			go page("greedy")
		}
		synctest.Wait()
		for range 3 {
			go page("modest")
		}
		synctest.Wait()
		at := func(key string) time.Duration {
			mu.Lock()
			defer mu.Unlock()
			return began[key]
		}
		require.Less(t, at("modest"), 10*time.Millisecond, "a quarter of the turns is not the greedy one's")
		for range 9 {
			go page("third")
			go page("fourth")
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		require.Less(t, at("third"), 20*time.Second)
		require.Less(t, at("fourth"), 20*time.Second)
		require.Equal(t, turns, most)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		a := asker{key: "greedy"}
		m := held{of: r, asker: a, mine: r.enter(a)}
		require.ErrorIs(t, m.takeTurn(ctx), context.DeadlineExceeded)
		m.release()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		require.Empty(t, r.by, "all is given back")
		require.True(t, r.turns.TryAcquire(turns))
	})
}
