package adminserver_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon/adminserver"
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
	b, err := listing.New(s, listing.Options{})
	require.NoError(t, err)
	get, server := probe(t, s, b)
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
	server.Drain()
	status, _ = get("/readyz")
	require.Equal(t, http.StatusServiceUnavailable, status)

	// A store that can't say so is read.
	get, _ = probe(t, s.Store, b)
	status, _ = get("/readyz")
	require.Equal(t, http.StatusOK, status)
	broken := unreadable{s.Store}
	b, err = listing.New(broken, listing.Options{})
	require.NoError(t, err)
	get, _ = probe(t, broken, b)
	status, body = get("/readyz")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, body, errUnreadable.Error())
}

// probe serves an admin address, and returns what gets one of its paths.
func probe(
	t *testing.T, s store.Store, b *listing.Client,
) (get func(path string) (int, string), server *adminserver.Server) {
	t.Helper()
	access, err := (&adminserver.Flags{}).Open(slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	server = listen(t, s, b, access, io.Discard)
	go func() { _ = server.Serve(http.NotFoundHandler()) }()
	return func(path string) (int, string) { return ask(t, http.MethodGet, server.URL()+path) }, server
}

var errUnreadable = errors.New("nothing can be read")

// unreadable is a store whose registers can't be read.
type unreadable struct{ store.Store }

func (unreadable) Read(context.Context, store.Table, []byte, store.Level) (store.Record, error) {
	return store.Record{}, errUnreadable
}
