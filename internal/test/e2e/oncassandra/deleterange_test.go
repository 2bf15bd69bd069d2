package oncassandra

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/listing"
)

// Ranges of keys are deleted while ranges move, somebody puts, and somebody lists: afterwards what was put before is
// gone, and what came meanwhile is there.
func TestRangesAreDeletedWhileOthersWork(t *testing.T) {
	t.Parallel()
	ctx, o := t.Context(), harness.Shared(t, &cassandra)
	s := harness.Open(t, o)
	require.NoError(t, mapclient.InitClocks(ctx, s, harness.Clocks))
	const lease = time.Second
	l := newCrowd(t, "purged", 10_000)
	c := harness.Client(t, s, harness.Maps(t, s, lease), listing.Options{})
	require.NoError(t, c.CreateBucket(ctx, l.bucket, []byte(l.keys[3000]), []byte(l.keys[6000])))
	b := c.Bucket(l.bucket)
	var old []listing.Entry
	for _, k := range l.keys {
		old = append(old, listing.Entry{Key: []byte(k), Value: []byte("old")})
	}
	require.NoError(t, b.PutBatch(ctx, old))
	m := startMoves(t, o, l, lease)
	m.progress(2)

	const from, to = 1500, 9200
	other := harness.Client(t, harness.Open(t, o), harness.Maps(t, s, lease), listing.Options{}).Bucket(l.bucket)
	working, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	var came []string
	work.Go(func() {
		for i := 0; working.Err() == nil; i++ {
			key := fmt.Sprintf("%s/new%d", l.keys[(i*37)%len(l.keys)], i)
			if other.Put(ctx, []byte(key), []byte("new")) == nil {
				came = append(came, key)
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
	work.Go(func() {
		for working.Err() == nil {
			last := ""
			for item, err := range other.All(ctx, listing.Query{KeysOnly: true}) {
				if err != nil {
					break // a listing may fail, not lie
				}
				if string(item.Key) <= last {
					t.Errorf("%q after %q", item.Key, last)
				}
				last = string(item.Key)
			}
		}
	})
	require.Eventually(t, func() bool { // it may fail where a lease ends: then it is repeated
		err := b.DeleteRange(ctx, []byte(l.keys[from]), []byte(l.keys[to]))
		if err != nil {
			t.Log(err)
		}
		return err == nil
	}, 2*time.Minute, 10*time.Millisecond)
	m.progress(2)
	stop()
	work.Wait()
	m.stop()
	m.end(o, lease)

	got := map[string]string{}
	for item, err := range b.All(ctx, listing.Query{}) {
		require.NoError(t, err)
		got[string(item.Key)] = string(item.Value)
	}
	for i, k := range l.keys {
		if gone := i >= from && i < to; gone == (got[k] == "old") {
			t.Errorf("%s is %q", k, got[k])
		}
		delete(got, k)
	}
	before := 0 // what came while the last call began may be gone
	for _, k := range came {
		if got[k] != "new" {
			before++
		}
	}
	t.Logf("%d keys came meanwhile, %d of them before a call began", len(came), before)
	require.Less(t, before, len(came))
	require.Len(t, got, len(came)-before)
}
