package oncassandra

import (
	"context"
	"encoding/xml"
	"fmt"
	"math/rand/v2"
	"net/url"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/internal/test/history"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/store"
)

// Of two servers on one keyspace one is stopped for longer than a lease, again and
// again, and goes on where it was; the other one is killed and started anew. All
// the while ranges move and clients of both write, read and list: what anybody was
// told is true.
func TestServersStoppedPastTheirLease(t *testing.T) {
	t.Parallel()
	const lease = time.Second
	p := build(t)
	s := p.LaidOut(cassandra.Address(t))
	const bucket = "abc"
	l := newCrowd(t, bucket, 200)
	serve := func() *harness.Server {
		return p.ServeSite(s, "--lease", lease.String(), "--request-timeout", "5s", "--rebalance-interval", "0")
	}
	stopped := serve()
	var killed atomic.Pointer[harness.Server]
	killed.Store(serve())
	p.Run("listd", "bucket", "create", bucket, "--server", stopped.S3)

	var clients []func(context.Context)
	for n := range 8 {
		r := seed.New(t)
		of := func() string { return stopped.S3 }
		if n%2 == 1 {
			of = func() string { return killed.Load().S3 }
		}
		clients = append(clients, func(ctx context.Context) {
			for ctx.Err() == nil {
				if err := overDialect(l, of()+"/"+bucket, r); err == nil {
					l.count("")
					time.Sleep(pause)
				} else if !store.OutcomeUnknown(err) {
					t.Errorf("a client was told %v", err)
				} else {
					time.Sleep(20 * time.Millisecond)
				}
			}
		})
	}
	end := harness.Meanwhile(t, clients...)
	o := harness.Patient(s.Options())
	m := startMoves(t, o, l, lease)
	for round := range 3 {
		l.progress(200, atLeast(t, lease), "")
		harness.Halt(t, stopped.Cmd.Process)
		if round%2 == 0 {
			require.NoError(t, killed.Load().Cmd.Process.Kill())
		}
		m.progress(1) // at least five leases
		require.NoError(t, stopped.Cmd.Process.Signal(syscall.SIGCONT))
		if round%2 == 0 {
			killed.Store(serve())
		}
	}
	l.progress(200, lease, "")
	end()
	m.stop()
	for _, srv := range []*harness.Server{stopped, killed.Load()} {
		for _, key := range l.keys {
			require.NoError(t, getOver(l, srv.S3+"/"+bucket, key))
		}
		require.NoError(t, listOver(l, srv.S3+"/"+bucket, 1000))
	}
	h := l.record.History()
	unknown := 0
	for _, w := range h.Writes {
		if w.Outcome == history.Unknown {
			unknown++
		}
	}
	t.Logf("%d writes, %d of unknown outcome, %d gets, %d listings", len(h.Writes), unknown, len(h.Reads),
		len(h.Listings))
	require.Empty(t, h.Check())
	m.end(o, lease)
}

// overDialect does something to a bucket over HTTP.
func overDialect(l *crowd, base string, r *rand.Rand) error {
	key := l.keys[r.IntN(len(l.keys))]
	switch n := r.IntN(10); {
	case n < 4:
		return l.record.Put(l.t.Context(), "", key, func(_ context.Context, value []byte) error {
			return told(l, "PUT", base+"/"+url.PathEscape(key), string(value), 200)
		})
	case n < 7:
		return l.record.Delete(l.t.Context(), "", key,
			func(context.Context) error { return told(l, "DELETE", base+"/"+url.PathEscape(key), "", 204) })
	case n < 9:
		return getOver(l, base, key)
	}
	return listOver(l, base, []int{7, 50, 1000}[r.IntN(3)])
}

// told does a request that answers with a status, or says nothing of its outcome.
func told(l *crowd, method, url, body string, status int) error {
	a, err := harness.RequestOf(l.t.Context(), method, url, body)
	switch {
	case err != nil:
		return store.Errorf(store.Timeout, "%w", err)
	case a.Status == 503:
		return store.Errorf(store.Timeout, "503: %s", a.Body)
	case a.Status != status:
		return fmt.Errorf("%s %s: %d %s", method, url, a.Status, a.Body)
	}
	return nil
}

func getOver(l *crowd, base, key string) error {
	return l.record.Get("", key, func() ([]byte, bool, error) {
		a, err := harness.RequestOf(l.t.Context(), "GET", base+"/"+url.PathEscape(key), "")
		switch {
		case err != nil:
			return nil, false, store.Errorf(store.Timeout, "%w", err)
		case a.Status == 200:
			return []byte(a.Body), true, nil
		case a.Status == 404:
			return nil, false, nil
		case a.Status == 503:
			return nil, false, store.Errorf(store.Timeout, "503: %s", a.Body)
		}
		return nil, false, fmt.Errorf("GET %s: %d %s", key, a.Status, a.Body)
	})
}

func listOver(l *crowd, base string, limit int) error {
	token := ""
	return l.record.List(history.Listing{KeysOnly: true}, func() ([]history.Item, bool, error) {
		q := url.Values{"list-type": {"2"}, "max-keys": {fmt.Sprint(limit)}}
		if token != "" {
			q.Set("continuation-token", token)
		}
		a, err := harness.RequestOf(l.t.Context(), "GET", base+"?"+q.Encode(), "")
		if err != nil || a.Status == 503 {
			return nil, false, store.Errorf(store.Timeout, "listing: %d %w", a.Status, err)
		}
		if a.Status != 200 {
			return nil, false, fmt.Errorf("listing: %d %s", a.Status, a.Body)
		}
		var page struct {
			IsTruncated           bool
			NextContinuationToken string
			Contents              []struct{ Key string }
		}
		if err := xml.Unmarshal([]byte(a.Body), &page); err != nil {
			return nil, false, err
		}
		items := make([]history.Item, len(page.Contents))
		for i, c := range page.Contents {
			items[i].Key = c.Key
		}
		token = page.NextContinuationToken
		return items, page.IsTruncated, nil
	}, nil)
}
