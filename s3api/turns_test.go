package s3api

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSlotsComeBack: to the one who had them, too.
func TestSlotsComeBack(t *testing.T) {
	r := newRequests(4, minMemory, 4)
	h, other := r.enter(asker{key: "a"}), r.enter(asker{key: "b"})
	for range 100 {
		for range 3 {
			require.True(t, r.takeSlot(h))
		}
		require.False(t, r.takeSlot(h), "three of four")
		require.True(t, r.takeSlot(other))
		require.False(t, r.takeSlot(other), "there are no more")
		r.freeSlot(other)
		for range 3 {
			r.freeSlot(h)
		}
		require.Equal(t, []int{0, 0, 0}, []int{r.used, h.slots, other.slots})
	}
}

// TestATurnThatIsNotHad: who waits in vain for others leaves those behind him their place.
func TestATurnThatIsNotHad(t *testing.T) {
	r := newRequests(10, minMemory, 4)
	require.True(t, r.turns.TryAcquire(4))
	m := held{of: r, mine: r.enter(asker{})}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, m.takeTurn(ctx), context.DeadlineExceeded)
	})
	require.True(t, m.mine.turns.TryAcquire(3))
	m.mine.turns.Release(3)
	m.endTurn()
	r.turns.Release(4)
	require.NoError(t, m.takeTurn(t.Context()))
	m.endTurn()
	require.True(t, r.turns.TryAcquire(4))
	require.True(t, m.mine.turns.TryAcquire(3))
}

// TestAskersTakeTurns: whoever asks for very many pages does not keep another one from
// the next turns.
func TestAskersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const turns = 4
		r := newRequests(1000, minMemory, turns)
		began := map[string][]time.Duration{} // when the turns of an asker began
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
			most, began[key] = max(most, now), append(began[key], time.Since(start))
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
		turnsOf := func(key string) []time.Duration {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(began[key])
		}
		require.Equal(t, []time.Duration{0}, turnsOf("modest"), "a quarter of the turns is not the greedy one's")
		for range 9 {
			go page("third")
			go page("fourth")
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		require.Len(t, turnsOf("modest"), 3)
		require.Len(t, turnsOf("third"), 9)
		require.Len(t, turnsOf("fourth"), 9)
		require.Less(t, len(turnsOf("greedy")), 300, "it still asks")
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
