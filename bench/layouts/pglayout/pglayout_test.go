package pglayout_test

import (
	"math/rand/v2"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/bench/layouts"
	"github.com/evenkeel/evenkeel/bench/layouts/layouttest"
	"github.com/evenkeel/evenkeel/bench/layouts/pglayout"
	"github.com/evenkeel/evenkeel/bench/postgrestest"
	"github.com/evenkeel/evenkeel/internal/test/realkeys"
	"github.com/evenkeel/evenkeel/internal/test/seed"
)

func TestPostgresAnswersAsTheOracle(t *testing.T) {
	seed := seed.Number(t)
	r := rand.New(rand.NewPCG(seed, 1))
	s := postgrestest.New(t)
	pool, err := pgxpool.New(t.Context(), s.URL)
	require.NoError(t, err)
	defer pool.Close()
	require.NotEmpty(t, s.Version)
	require.NoError(t, pglayout.CreateTable(t.Context(), pool))
	keys := realkeys.Awkward(1000, seed, true)
	var m layouts.Meter
	layouttest.ByKey(t, r, pglayout.New(pool, "awkward", &m, realkeys.Cuts(keys, 3)...), keys, false)
	require.Positive(t, m.Work().Rows)
	layouttest.Feed(t, r, pglayout.New(pool, "feed", nil), layouttest.FeedKeys(t, r, 1000))
	require.NoError(t, pglayout.Settle(t.Context(), pool))

	_, err = pglayout.New(pool, "awkward", nil).List(t.Context(), layouts.Query{Delimiter: []byte{0xff}})
	require.ErrorIs(t, err, layouts.ErrCannot)
}
