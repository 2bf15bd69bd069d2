package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel"
	"github.com/evenkeel/evenkeel/internal/test/cassandratest"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/keys"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
)

var cassandra cassandratest.Shared

func TestMain(m *testing.M) { os.Exit(cassandra.Run(m)) }

// timeBuckets is the usual layout: a partition for each user and day. A page begins with
// today and goes back day by day, until it is full or the day of the user's first post is
// reached, which it has to know.
type timeBuckets struct {
	session *gocql.Session
	reads   int
}

func day(at time.Time) int { return int(at.Unix() / (24 * 3600)) }

func (t *timeBuckets) page(ctx context.Context, user string, today time.Time, first, limit int) (page []Post, err error) {
	for d := day(today); d >= first && len(page) < limit; d-- {
		t.reads++
		rows := t.session.Query("SELECT id, text FROM posts WHERE user = ? AND day = ? LIMIT ?", user, d, limit-len(page)).
			WithContext(ctx).Iter()
		for p := (Post{}); rows.Scan(&p.ID, &p.Text); {
			page = append(page, p)
		}
		if err := rows.Close(); err != nil {
			return nil, err
		}
	}
	return page, nil
}

// BenchmarkPages compares pages of the newest 20 posts of users with 0.1 to 10,000 posts a
// day, by this example and from time buckets, in turns. It needs a Cassandra node.
func BenchmarkPages(b *testing.B) {
	ctx, now := b.Context(), time.Date(2026, 11, 23, 23, 59, 0, 0, time.UTC)
	o := harness.Keyspace(b, cassandra.Address(b), cassandrastore.Replication{"dc1": 1})
	db, err := evenkeel.OpenCassandra(ctx, evenkeel.Cassandra{
		Hosts: o.Hosts, DataCentre: o.DataCentre, Keyspace: o.Keyspace, Store: o,
		Options: evenkeel.Options{Unbalanced: true},
	})
	require.NoError(b, err)
	defer db.Close()
	users := []struct {
		name   string
		perDay float64
		days   int
	}{{"rare", 0.1, 365}, {"daily", 1, 60}, {"ten", 10, 20}, {"hundred", 100, 10}, {"thousand", 1000, 4}, {"bot", 10_000, 2}}
	// As a balancer with a maximum of a few thousand rows would have cut.
	var cuts [][]byte
	for _, u := range users {
		cuts = append(cuts, keys.Of(keys.String(u.name)))
	}
	slices.SortFunc(cuts, bytes.Compare)
	require.NoError(b, db.CreateBucket(ctx, "posts", cuts...))
	f, err := NewFeed(ctx, db.Client(), 1)
	require.NoError(b, err)

	t := timeBuckets{session: harness.Session(b, o.Hosts[0], o.Keyspace)}
	require.NoError(b, t.session.Query(
		"CREATE TABLE posts (user text, day int, id bigint, text text, PRIMARY KEY ((user, day), id)) "+
			"WITH CLUSTERING ORDER BY (id DESC)").Exec())
	for _, u := range users {
		every := time.Duration(float64(24*time.Hour) / u.perDay)
		require.NoError(b, f.fill(ctx, u.name, now, int(u.perDay*float64(u.days)), every))
		var g errgroup.Group
		g.SetLimit(32)
		for p, err := range f.read(ctx, all(u.name)) {
			require.NoError(b, err)
			g.Go(func() error {
				return t.session.Query("INSERT INTO posts (user, day, id, text) VALUES (?, ?, ?, ?)",
					u.name, day(p.Time()), p.ID, p.Text).Exec()
			})
		}
		require.NoError(b, g.Wait())
	}

	const rounds, limit = 200, 20
	fmt.Println("\n| posts per day | evenkeel | time buckets | ratio | partitions read |\n|---|---|---|---|---|")
	for _, u := range users {
		first := day(now.AddDate(0, 0, -u.days))
		var ours, theirs []time.Duration
		t.reads = 0
		for range rounds {
			begun := time.Now()
			a, err := f.Page(ctx, u.name, 0, limit)
			require.NoError(b, err)
			middle := time.Now()
			c, err := t.page(ctx, u.name, now, first, limit)
			require.NoError(b, err)
			ours, theirs = append(ours, middle.Sub(begun)), append(theirs, time.Since(middle))
			require.Equal(b, a, c)
		}
		slices.Sort(ours)
		slices.Sort(theirs)
		x, y := ours[rounds/2], theirs[rounds/2]
		fmt.Printf("| %v | %.2f ms | %.2f ms | %.1f | %d |\n", u.perDay, x.Seconds()*1e3, y.Seconds()*1e3,
			y.Seconds()/x.Seconds(), t.reads/rounds)
	}
}
