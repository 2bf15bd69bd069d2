package s3api

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// Transfers have a budget of their own, of which one client gets three quarters: neither one that reads 512 bodies
// slowly, nor all together, keep others from small requests.
func TestSlowTransfersLeaveRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRequests(10, 128<<20, 4) // 32 MiB for small ones
		var all []*held
		fill := func(key string, bytes int64) (n int) {
			for {
				m := &held{of: r, asker: asker{key: key}}
				m.mine = r.enter(m.asker)
				all = append(all, m)
				if m.take(t.Context(), bytes) != nil {
					return n
				}
				n++
			}
		}
		require.Equal(t, 336, fill("slow", streamBytes), "three quarters of 448")
		require.Equal(t, 112, fill("other", streamBytes), "the rest")
		require.Zero(t, fill("third", streamBytes))
		for _, bytes := range []int64{100, 8 << 10} {
			m := &held{of: r, asker: asker{key: "third"}}
			m.mine = r.enter(m.asker)
			all = append(all, m)
			require.Nil(t, m.take(t.Context(), bytes), "small requests have room")
		}
		for _, m := range all {
			m.release()
		}
		require.True(t, r.smalls.TryAcquire(32<<20))
		require.True(t, r.streams.TryAcquire(28<<20))
		require.Empty(t, r.by)
	})
}

// One client whose small answers nobody reads leaves room for those of others, too.
func TestSlowSmallRequestsLeaveRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRequests(10, 16<<20, 4)
		m, other := &held{of: r, mine: r.enter(asker{key: "a"})}, &held{of: r, mine: r.enter(asker{key: "b"})}
		for m.take(t.Context(), 32<<10) == nil { //nolint:revive // until nothing is left
		}
		require.Equal(t, int64(3<<20), m.small)
		require.Nil(t, other.take(t.Context(), 32<<10))
	})
}

// A body counts with the length that is announced for it decoded, for which memory is allocated, not with what the
// request has.
func TestAnnouncedBodiesCount(t *testing.T) {
	h := overBodies(t, &bodies{}, Options{})
	const announced = 8_000_000
	r := httptest.NewRequest("POST", "/abc?delete", strings.NewReader("0\r\n\r\n"))
	r.Header.Set("X-Amz-Content-Sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER")
	r.Header.Set("X-Amz-Decoded-Content-Length", strconv.Itoa(announced))
	x := &exchange{w: httptest.NewRecorder(), r: r, held: held{of: h.requests, mine: h.requests.enter(asker{})}}
	defer x.release()
	_, refusal := h.open(x, announced, itself)
	require.Nil(t, refusal)
	require.Equal(t, int64(announced), x.large)
	r.Header.Set("X-Amz-Decoded-Content-Length", strconv.Itoa(announced+1))
	_, refusal = h.open(x, announced, itself)
	require.NotNil(t, refusal)
	require.Equal(t, http.StatusBadRequest, refusal.Status)
}
