package oncassandra

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/keys"
	"github.com/evenkeel/evenkeel/listing"
)

// adoptSlices is how many bare readers there are, as many as streams of an adoption.
const adoptSlices = 8

// adoptRows returns how many rows are adopted: 1,000,000 show what large tables need, and take many minutes.
func adoptRows(t *testing.T) int {
	text := os.Getenv("EVENKEEL_ADOPT_ROWS")
	if text == "" {
		return 20_000
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n / 1000 * 1000
}

// schema is a table of an application, its name as %s.
type schema struct {
	create, insert, remove, read string
	// args are those of the primary key.
	args func(i int) []any
	// slice selects one of adoptSlices parts of the table's rows, of which there are so many.
	slice func(part, rows int) (where []string, args [][]any)
	flags []string
}

// adoption is a way to store rows, and to store them in one wide partition.
type adoption struct {
	name       string
	have, wide schema
	key        func(i int) []byte         // in the bucket
	value      func(stored string) string // in the bucket
}

func adoptions() []adoption {
	name := func(i int) string { return fmt.Sprintf("photo/%07d.jpg", i) }
	names := schema{
		create: "CREATE TABLE %s (room text, name text, meta blob, PRIMARY KEY (room, name))",
		insert: "INSERT INTO %s (room, name, meta) VALUES ('r', ?, textAsBlob(?)) USING TIMESTAMP ?",
		remove: "DELETE FROM %s USING TIMESTAMP ? WHERE room = 'r' AND name = ?",
		read:   "SELECT name, blobAsText(meta) FROM %s WHERE room = 'r'",
		args:   func(i int) []any { return []any{name(i)} },
		slice: func(part, rows int) ([]string, [][]any) {
			from, to := name(part*rows/adoptSlices), name((part+1)*rows/adoptSlices)
			return []string{"room = 'r' AND name >= ? AND name < ?"}, [][]any{{from, to}}
		},
		flags: []string{"--partition", "room=r", "--value", "meta"},
	}
	const step = 1_000_003
	shard := func(i int) int16 { return int16(i * 7919 % 256) }
	return []adoption{{
		name: "one wide partition",
		have: names, wide: names,
		key:   func(i int) []byte { return []byte(name(i)) },
		value: func(stored string) string { return stored },
	}, {
		name: "256 hash buckets, newest first",
		have: schema{
			create: "CREATE TABLE %s (room text, shard smallint, id bigint, n int, meta text, " +
				"PRIMARY KEY ((room, shard), id)) WITH CLUSTERING ORDER BY (id DESC)",
			insert: "INSERT INTO %s (room, n, shard, id, meta) VALUES ('r', 7, ?, ?, ?) USING TIMESTAMP ?",
			remove: "DELETE FROM %s USING TIMESTAMP ? WHERE room = 'r' AND shard = ? AND id = ?",
			args:   func(i int) []any { return []any{shard(i), int64(i) * step} },
			slice: func(part, _ int) (where []string, args [][]any) {
				for s := part; s < 256; s += adoptSlices {
					where, args = append(where, "room = 'r' AND shard = ?"), append(args, []any{int16(s)})
				}
				return where, args
			},
			flags: []string{"--partition", "room=r,shard=0..255", "--value", "meta,n"},
		},
		wide: schema{
			create: "CREATE TABLE %s (room text, id bigint, n int, meta text, PRIMARY KEY (room, id)) " +
				"WITH CLUSTERING ORDER BY (id DESC)",
			insert: "INSERT INTO %s (room, n, id, meta) VALUES ('r', 7, ?, ?) USING TIMESTAMP ?",
			remove: "DELETE FROM %s USING TIMESTAMP ? WHERE room = 'r' AND id = ?",
			read:   "SELECT id, meta FROM %s WHERE room = 'r'",
			args:   func(i int) []any { return []any{int64(i) * step} },
			flags:  []string{"--partition", "room=r", "--value", "meta,n"},
		},
		key: func(i int) []byte { return keys.Of(keys.Desc(keys.Int(int64(i) * step))) },
		value: func(stored string) string {
			if strings.HasPrefix(stored, later) { // the same in another form
				return fmt.Sprintf(`{"n": 7, "meta": %q}`, stored)
			}
			return fmt.Sprintf(`{"meta":%q,"n":7}`, stored)
		},
	}}
}

// later begins values that are written after the cut-over.
const later = "later: "

// application is a program that has rows in a table of its own, and begins to use a bucket.
type application struct {
	adoption
	rows    int
	session *gocql.Session
	table   string
	in      schema // of the table
	bucket  *listing.Bucket
	writes  atomic.Int64
}

// where says where the application writes, and in which order.
type where int

const (
	tableAlone where = iota
	tableFirst
	bucketAlone
	bucketFirst
)

// change puts a value, or deletes (""), at a time of the application's clock, until it is acknowledged.
func (a *application) change(ctx context.Context, i int, stored string, at time.Time, w where) {
	args, cql := append(append([]any{}, a.in.args(i)...), stored, at.UnixMicro()), a.in.insert
	if stored == "" {
		args, cql = append([]any{at.UnixMicro()}, a.in.args(i)...), a.in.remove
	}
	inTable := func() error {
		return a.session.Query(fmt.Sprintf(cql, a.table), args...).WithContext(ctx).Exec()
	}
	inBucket := func() error {
		if stored == "" {
			return a.bucket.Delete(ctx, a.key(i))
		}
		return a.bucket.Put(ctx, a.key(i), []byte(a.value(stored)))
	}
	for _, f := range map[where][]func() error{
		tableAlone: {inTable}, tableFirst: {inTable, inBucket}, bucketAlone: {inBucket}, bucketFirst: {inBucket, inTable},
	}[w] {
		for f() != nil && ctx.Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
	}
}

const (
	adoptWriters = 4
	adoptWrites  = 500 // per second, of all writers
)

// wrong is how far the clock of a writer is ahead. That of the first is behind; after the cut-over only as far as
// docs/adopt.md allows.
func wrong(writer int, w where) time.Duration {
	if writer == 0 && w >= bucketAlone {
		return -500 * time.Millisecond
	}
	return time.Duration(writer-1) * 2 * time.Second
}

// write changes random rows until it is stopped: a writer those with numbers writer, writer+adoptWriters and so on.
func (a *application) write(
	ctx context.Context, random *rand.Rand, writer int, stop <-chan struct{}, oracle map[int]string, w where,
) {
	began := time.Now()
	for round := 0; ; round++ {
		select {
		case <-stop:
			return
		case <-time.After(time.Until(began.Add(time.Duration(round) * adoptWriters * time.Second / adoptWrites))):
		}
		i := random.IntN(a.rows*11/10/adoptWriters)*adoptWriters + writer // some are new
		stored := fmt.Sprintf("writer %d, round %d", writer, round)
		if w >= bucketAlone {
			stored = later + stored
		}
		if random.IntN(3) == 0 {
			stored = ""
			delete(oracle, i)
		} else {
			oracle[i] = stored
		}
		a.change(ctx, i, stored, time.Now().Add(wrong(writer, w)), w)
		a.writes.Add(1)
	}
}

// inTable returns what a wide table has, by the bucket's keys.
func (a *application) inTable(t *testing.T) map[string]string {
	out := map[string]string{}
	iter := a.session.Query(fmt.Sprintf(a.wide.read, a.table)).PageSize(5000).Iter()
	var stored, name string
	var id int64
	for {
		switch a.wide.args(0)[0].(type) {
		case string:
			if !iter.Scan(&name, &stored) {
				require.NoError(t, iter.Close())
				return out
			}
			out[name] = stored
		default:
			if !iter.Scan(&id, &stored) {
				require.NoError(t, iter.Close())
				return out
			}
			out[string(keys.Of(keys.Desc(keys.Int(id))))] = stored
		}
	}
}

// requireEqual shows a few keys that differ.
func requireEqual(t *testing.T, want, got map[string]string) {
	t.Helper()
	var differ []string
	for key, value := range want {
		if have, found := got[key]; !found || have != value {
			differ = append(differ, fmt.Sprintf("%q: %q is wanted, %q (%v) is there", key, value, have, found))
		}
	}
	for key, value := range got {
		if _, found := want[key]; !found {
			differ = append(differ, fmt.Sprintf("%q: %q is too much", key, value))
		}
	}
	require.Empty(t, differ[:min(len(differ), 10)], "%d keys differ", len(differ))
}
