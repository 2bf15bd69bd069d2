package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel"
	"github.com/evenkeel/evenkeel/internal/test/cassandratest"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/keys"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

var cassandra cassandratest.Shared

func TestMain(m *testing.M) { os.Exit(cassandra.Run(m)) }

// BenchmarkSets measures the layouts in turns and prints a table.
func BenchmarkSets(b *testing.B) {
	b.Run("embedded", func(b *testing.B) {
		rows, err := pebblestore.Open(b.TempDir(), pebblestore.Options{})
		require.NoError(b, err)
		defer rows.Close()
		layouts := []layout{{"hash buckets", newHashSets(rows, buckets)}}
		for _, salts := range []int{0, salts} {
			db, err := evenkeel.Open(b.TempDir(), evenkeel.Options{Unbalanced: true})
			require.NoError(b, err)
			defer db.Close()
			layouts = append(layouts, sortedAndCut(b, db.Client(), salts))
		}
		compare(b, layouts)
	})
	b.Run("cassandra", func(b *testing.B) {
		o := harness.Keyspace(b, cassandra.Address(b), cassandrastore.Replication{"dc1": 1})
		layouts := []layout{{"hash buckets", newHashSets(harness.Open(b, o), buckets)}}
		for _, salts := range []int{0, salts} {
			o := harness.Keyspace(b, o.Hosts[0], cassandrastore.Replication{"dc1": 1})
			db, err := evenkeel.OpenCassandra(b.Context(), evenkeel.Cassandra{
				Hosts: o.Hosts, DataCentre: o.DataCentre, Keyspace: o.Keyspace, Store: o,
				Options: evenkeel.Options{Unbalanced: true},
			})
			require.NoError(b, err)
			defer db.Close()
			layouts = append(layouts, sortedAndCut(b, db.Client(), salts))
		}
		compare(b, layouts)
	})
}

// sortedAndCut is a sorted layout with cuts as a balancer makes them that allows 25,000 rows.
func sortedAndCut(b *testing.B, c *listing.Client, salts int) layout {
	b.Helper()
	name, cuts := fmt.Sprint("salted by ", salts), [][]byte(nil)
	if salts == 0 {
		name = "sorted"
		for _, member := range []string{"user-250000", "user-500000", "user-750000"} {
			cuts = append(cuts, keys.Of(keys.String("100000"), keys.String(member)))
		}
	} else {
		cuts = keys.Salts(salts)[1:]
	}
	require.NoError(b, c.CreateBucket(b.Context(), "likes", cuts...))
	s, err := newSortedSets(b.Context(), c, salts)
	require.NoError(b, err)
	return layout{name, s}
}

func compare(b *testing.B, layouts []layout) {
	ctx := b.Context()
	sizes := []int{3, 1_000, 100_000}
	type operation struct {
		name   string
		rounds int
		do     func(ctx context.Context, s Sets, round int) error
	}
	operations := []operation{
		{"add one", 200, func(ctx context.Context, s Sets, i int) error { return s.Add(ctx, "another", member(i)) }},
		{"is one of 100,000 there", 200, func(ctx context.Context, s Sets, i int) error {
			there, err := s.Has(ctx, "100000", member(i))
			if err == nil && !there {
				err = fmt.Errorf("%s is missing", member(i))
			}
			return err
		}},
	}
	for _, n := range sizes {
		set, rounds := fmt.Sprint(n), 200_000/(n+2_000)+3
		operations = append(operations, operation{fmt.Sprint("count ", n), rounds,
			func(ctx context.Context, s Sets, _ int) error {
				got, err := s.Count(ctx, set)
				if err == nil && got != n {
					err = fmt.Errorf("%d of %d members", got, n)
				}
				return err
			}})
		if n >= 1_000 {
			operations = append(operations, operation{fmt.Sprint("read 20 of ", n), 100,
				func(ctx context.Context, s Sets, _ int) error {
					some, err := first(ctx, s, set, 20)
					if err == nil && len(some) != 20 {
						err = fmt.Errorf("%d of 20 members", len(some))
					}
					return err
				}})
		}
	}

	header := "\n| |"
	for _, l := range layouts {
		header += " " + l.name + " |"
		for _, n := range sizes {
			require.NoError(b, fill(ctx, l.sets, fmt.Sprint(n), n))
		}
	}
	fmt.Printf("%s\n|---|---|---|---|\n", header)
	for _, op := range operations {
		times := make([][]time.Duration, len(layouts))
		for round := range op.rounds {
			for i, l := range layouts {
				begun := time.Now()
				require.NoError(b, op.do(ctx, l.sets, round), "%s: %s", l.name, op.name)
				times[i] = append(times[i], time.Since(begun))
			}
		}
		fmt.Printf("| %s |", op.name)
		for _, took := range times {
			slices.Sort(took)
			fmt.Printf(" %.2f ms |", took[len(took)/2].Seconds()*1e3)
		}
		fmt.Println()
	}
}
