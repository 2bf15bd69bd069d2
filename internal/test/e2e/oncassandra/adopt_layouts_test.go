package oncassandra

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/keys"
	"github.com/evenkeel/evenkeel/listing"
)

// TestAdoptEachLayout: time buckets, partitions by the first characters of the key, and a table per slice of time
// become one bucket, which is cut so that no range is too large, though each partition has a part of the keys for
// itself. A row that is deleted in one of them is deleted by a catch-up, and no others. What is refused is listed and
// counted.
func TestAdoptEachLayout(t *testing.T) {
	t.Parallel()
	p := build(t)
	site := p.LaidOut(cassandra.Address(t))
	p.ServeSite(site, "--lease", "1s")
	store := harness.Open(t, harness.Patient(site.Options()))
	client := harness.Client(t, store, harness.Maps(t, store, time.Second), listing.Options{})
	session := harness.Session(t, site.Host, site.Name)
	const rows, perDay, maxRows = 6000, 100, 200
	first := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(i int) time.Time { return first.AddDate(0, 0, i/perDay).Add(time.Duration(i%perDay) * time.Minute) }
	day := func(i int) string { return at(i).Format(time.DateOnly) }
	daysSince1970 := func(i int) int64 { return at(i).Unix() / (24 * 60 * 60) }
	hex := func(i int) string { return fmt.Sprintf("%04x/%05d", i*7919%65536, i) }
	month := func(i int) string { return []string{"jan", "feb", "mar"}[int(at(i).Month())-1] }
	var prefixes []string
	for i := range 256 {
		prefixes = append(prefixes, "--partition", fmt.Sprintf("room=r,prefix=%02x", i))
	}
	for n, c := range []struct {
		name   string
		create []string
		// change is an insert, and remove a deletion, of a row with args.
		insert, remove func(i int) (cql string, args []any)
		key            func(i int) []byte
		flags          []string
		again          bool // new rows can go back to where they were
	}{{
		name:   "time buckets",
		create: []string{"CREATE TABLE days (room text, day date, at timestamp, v text, PRIMARY KEY ((room, day), at))"},
		insert: func(i int) (string, []any) {
			return "INSERT INTO days (room, day, at, v) VALUES ('r', ?, ?, ?)", []any{day(i), at(i)}
		},
		remove: func(i int) (string, []any) {
			return "DELETE FROM days WHERE room = 'r' AND day = ? AND at = ?", []any{day(i), at(i)}
		},
		key: func(i int) []byte { return keys.Of(keys.Int(daysSince1970(i)), keys.Time(at(i))) },
		flags: []string{"--table", site.Name + ".days", "--key", "day,at",
			"--partition", "room=r,day=2025-12-20..2026-03-31"},
		again: true,
	}, {
		name: "key prefixes",
		create: []string{"CREATE TABLE names (room text, prefix text, name text, v text, " +
			"PRIMARY KEY ((room, prefix), name))"},
		insert: func(i int) (string, []any) {
			return "INSERT INTO names (room, prefix, name, v) VALUES ('r', ?, ?, ?)", []any{hex(i)[:2], hex(i)}
		},
		remove: func(i int) (string, []any) {
			return "DELETE FROM names WHERE room = 'r' AND prefix = ? AND name = ?", []any{hex(i)[:2], hex(i)}
		},
		key:   func(i int) []byte { return []byte(hex(i)) },
		flags: append([]string{"--table", site.Name + ".names"}, prefixes...),
	}, {
		name: "a table per slice",
		create: []string{
			"CREATE TABLE jan (room text, at timestamp, v text, PRIMARY KEY (room, at))",
			"CREATE TABLE feb (room text, at timestamp, v text, PRIMARY KEY (room, at)) WITH CLUSTERING ORDER BY (at DESC)",
			"CREATE TABLE mar (room text, at timestamp, v text, PRIMARY KEY (room, at))",
		},
		insert: func(i int) (string, []any) {
			return "INSERT INTO " + month(i) + " (room, at, v) VALUES ('r', ?, ?)", []any{at(i)}
		},
		remove: func(i int) (string, []any) {
			return "DELETE FROM " + month(i) + " WHERE room = 'r' AND at = ?", []any{at(i)}
		},
		key: func(i int) []byte { return keys.Of(keys.Time(at(i))) },
		flags: []string{"--table", fmt.Sprintf("%[1]s.jan,%[1]s.feb,%[1]s.mar", site.Name), "--partition", "room=r",
			"--key", "at"},
	}} {
		t.Run(c.name, func(t *testing.T) {
			bucket := client.Bucket(fmt.Sprintf("layout-%d", n))
			for _, cql := range c.create {
				require.NoError(t, session.Query(cql).Exec())
			}
			want := map[string]string{}
			put := func(b *gocql.Batch, i int, value string) {
				cql, args := c.insert(i)
				b.Query(cql, append(args, value)...)
				want[string(c.key(i))] = value
			}
			for from := 0; from < rows; from += perDay {
				b := session.NewBatch(gocql.UnloggedBatch)
				for i := from; i < from+perDay; i++ {
					put(b, i, fmt.Sprint("value ", i))
				}
				require.NoError(t, session.ExecuteBatch(b))
			}
			try := func(more ...string) (code int, out string, s adoptSummary) {
				command := append([]string{"adopt", "cql", bucket.Name(), "--local-dc", "dc1", "--lease", "1s", "--max-rows",
					fmt.Sprint(maxRows), "--value", "v", "--json"}, c.flags...)
				code, out, errs := p.Try("rebalancer", site.Flags(append(command, more...)...)...)
				lines := strings.Split(strings.TrimSpace(out), "\n")
				require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &s), "%s %s", out, errs)
				return code, out, s
			}
			same := func() {
				t.Helper()
				got := map[string]string{}
				for item, err := range bucket.All(t.Context(), listing.Query{}) {
					require.NoError(t, err)
					got[string(item.Key)] = string(item.Value)
				}
				requireEqual(t, want, got)
			}
			code, _, s := try()
			require.Zero(t, code)
			require.EqualValues(t, rows, s.Summary.Put)
			same()
			(&adopting{application: &application{bucket: bucket}, t: t, client: client, maxRows: maxRows}).bounded()

			// A row goes in the middle of all, and what can't be an entry comes.
			cql, args := c.remove(rows / 2)
			require.NoError(t, session.Query(cql, args...).Exec())
			delete(want, string(c.key(rows/2)))
			refuse := func(i int, value, using string) {
				cql, args := c.insert(i)
				require.NoError(t, session.Query(cql+using, append(args, value)...).Exec())
				delete(want, string(c.key(i)))
			}
			for _, i := range []int{7, 8} { // a catch-up leaves what is there
				require.NoError(t, bucket.Delete(t.Context(), c.key(i)))
			}
			refuse(7, "x", " USING TTL 3600")
			refuse(8, strings.Repeat("v", 65_537), "")
			for _, mode := range []string{"--catch-up", "--verify"} {
				code, out, s := try(mode)
				require.Equal(t, 1, code, mode)
				require.EqualValues(t, 2, s.Summary.Refused, mode)
				require.Equal(t, 1, strings.Count(out, "it has a TTL"), mode)
				require.Equal(t, 1, strings.Count(out, "its value is too long"), mode)
				require.EqualValues(t, map[string]int{"--catch-up": 1}[mode], s.Summary.Different, mode)
			}
			same()
			code, out, s := try() // a copy counts them, too
			require.Equal(t, 1, code)
			require.EqualValues(t, 2, s.Summary.Refused)
			require.Equal(t, 1, strings.Count(out, "it has a TTL"))
			same()

			// Back again: a row that is new goes to where it belongs, if that can be known.
			cql, args = c.remove(9)
			require.NoError(t, session.Query(cql, args...).Exec())
			require.NoError(t, bucket.Put(t.Context(), c.key(10), []byte("after the cut-over")))
			require.NoError(t, bucket.Delete(t.Context(), c.key(11)))
			want[string(c.key(10))] = "after the cut-over"
			delete(want, string(c.key(11)))
			time.Sleep(1200 * time.Millisecond) // rows come back with the time of a second ago
			_, out, s = try("--back")
			homeless := map[bool]int{true: 0, false: 1}[c.again]
			require.Equal(t, homeless, strings.Count(out, "only the application knows"), out)
			require.EqualValues(t, []int64{int64(2 - homeless), 1}, []int64{s.Summary.Put, s.Summary.Deleted})
			_, _, s = try("--verify")
			require.EqualValues(t, homeless, s.Summary.Different)
			same()
		})
	}
}

// TestAdoptKeysThatCollide: two rows of different partitions that get one key are listed and counted by a comparison,
// and the newer one counts, whichever came first.
func TestAdoptKeysThatCollide(t *testing.T) {
	t.Parallel()
	e := endanger(t, cassandra.Address(t))
	require.NoError(t, e.session.Query("CREATE TABLE twice (shard int, name text, meta text, PRIMARY KEY (shard, name))").
		Exec())
	for shard, at := range []int{20, 10} {
		require.NoError(t, e.session.Query("INSERT INTO twice (shard, name, meta) VALUES (?, 'a', ?) USING TIMESTAMP ?",
			shard, fmt.Sprint("at ", at), at).Exec())
		require.NoError(t, e.session.Query("INSERT INTO twice (shard, name, meta) VALUES (?, ?, 'x')", shard,
			fmt.Sprint("b", shard)).Exec())
	}
	command := func(more ...string) []string {
		return e.site.Flags(append([]string{"adopt", "cql", "twice", "--table", e.site.Name + ".twice", "--partition",
			"shard=0..1", "--value", "meta", "--local-dc", "dc1", "--lease", "1s"}, more...)...)
	}
	e.Run("rebalancer", command()...)
	for _, mode := range []string{"--catch-up", "--verify"} {
		code, out, errs := e.Try("rebalancer", command(mode)...)
		require.Equal(t, 1, code, errs)
		require.Contains(t, out, "a: several rows of the source have this key")
		require.Contains(t, out, "1 refused")
		require.Contains(t, errs, "1 rows were refused")
	}
	got, err := e.client.Bucket("twice").Get(t.Context(), []byte("a"))
	require.NoError(t, err)
	require.Equal(t, "at 20", string(got.Value))

	// Partition columns in the key keep such rows apart.
	require.Contains(t, e.Run("rebalancer", command("--key", "shard,name", "--dry-run")...),
		"2 partitions with about 4 rows")
}
