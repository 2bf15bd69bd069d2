package adminserver_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/daemon/adminserver"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// readOnly is a store that can be read and, while it is on, not be written.
type readOnly struct {
	store.Store
	on atomic.Bool
}

func (r *readOnly) Writable() error {
	if r.on.Load() {
		return store.Errorf(store.Unavailable, "the log is broken")
	}
	return nil
}

// TestReadyzTellsOfAStoreThatCannotBeWritten: reads alone do not make a server ready.
func TestReadyzTellsOfAStoreThatCannotBeWritten(t *testing.T) {
	s := &readOnly{Store: memstore.New()}
	b, err := listing.NewEmbedded(s, listing.Options{})
	require.NoError(t, err)
	ready := adminserver.NewReadiness(s, b)
	access, err := (&adminserver.Flags{}).Open(slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	h, err := adminserver.New(adminserver.Options{
		Registry: prometheus.NewRegistry(), Ready: ready, Moves: http.NotFoundHandler(), Access: access,
		Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	get := func(path string) (int, string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code, w.Body.String()
	}
	status, _ := get("/readyz")
	require.Equal(t, http.StatusOK, status)
	s.on.Store(true)
	status, body := get("/readyz")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, body, "the log is broken")
	status, _ = get("/healthz")
	require.Equal(t, http.StatusOK, status)
	s.on.Store(false)
	status, _ = get("/readyz")
	require.Equal(t, http.StatusOK, status)
	ready.Drain()
	status, _ = get("/readyz")
	require.Equal(t, http.StatusServiceUnavailable, status)

	// A store without this power is asked for what is in it.
	require.NoError(t, adminserver.NewReadiness(s.Store, b).Check(t.Context()))
	broken := unreadable{s.Store}
	b, err = listing.NewEmbedded(broken, listing.Options{})
	require.NoError(t, err)
	require.ErrorIs(t, adminserver.NewReadiness(broken, b).Check(t.Context()), errUnreadable)
}

var errUnreadable = errors.New("nothing can be read")

// unreadable is a store whose registers can't be read.
type unreadable struct{ store.Store }

func (unreadable) Read(context.Context, store.Table, []byte, store.Level) (store.Record, error) {
	return store.Record{}, errUnreadable
}
