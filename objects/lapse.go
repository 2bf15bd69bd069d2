package objects

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects/internal/tidy"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/wait"
)

// lapseMargin is how much longer than users cleaners wait until they take a version as expired: longer
// than a delete by version may take from its first read to its last write (docs/objects.md, rule 9).
const lapseMargin = 5 * writeTimeout

// knownSettings are the settings that a cleaner acts on, and since when it has known them. They may change at any
// moment, and a pass may take hours: a cleaner reads them before each page of versions, and again before each step.
type knownSettings struct {
	raw []byte // as they are stored
	Settings
	since wait.Instant
}

// learn reads the bucket's settings, mostly without I/O. It reports whether they are those that the cleaner knows
// already: what was decided by others does not hold any more.
func (c *Cleaner) learn(ctx context.Context) (same bool, err error) {
	now := c.b.o.o.Now()
	raw, err := c.b.rows.Settings(ctx)
	if err != nil {
		return false, err
	}
	if c.known.since != (wait.Instant{}) && bytes.Equal(raw, c.known.raw) {
		return true, nil
	}
	s, err := ParseSettings(raw)
	if err != nil {
		return false, err
	}
	c.known = knownSettings{raw, s, now}
	return false, nil
}

// rules are the times of a cleaner for an object whose newest version has such tags. What rules say of
// noncurrent versions counts once it has known them for the margin: who deletes by older rules has ended then.
func (c *Cleaner) rules(key []byte, tags []Pair) tidy.Rules {
	r := tidy.Rules{Grace: c.o.Grace, Settled: c.o.Settled, Unmark: c.known.Status == Never, Margin: lapseMargin}
	if c.o.Now {
		r.Soon, r.Old = SoonGrace, c.least
	}
	now := c.b.o.o.Now()
	r.Of, r.Abandon = c.known.Lifecycle.of(key, tags, now.Wall), c.known.Lifecycle.abandons(key)
	if least, _ := now.Since(c.known.since); least < lapseMargin {
		for i := range r.Of {
			r.Of[i].Noncurrent = 0
		}
	}
	return r
}

// hiddenSince is the name under which the delete marker of an expired object has its time: its stamp is
// that of the object. No header has such a name.
const hiddenSince = ":hidden-since"

func hidesSince(now store.Timestamp) []Pair {
	return []Pair{{hiddenSince, strconv.FormatInt(int64(now), 10)}}
}

// version is what there is to know of a record's version.
func (r *record) version(id ID, now store.Timestamp) tidy.Version {
	v := tidy.Version{Rank: r.rank, Marker: r.marker, Null: r.null, Size: r.size, Age: age(now, id.Stamp), Proven: -1}
	v.Over = v.Age
	if i := slices.IndexFunc(r.meta, func(p Pair) bool { return p.Name == hiddenSince }); r.marker && i >= 0 {
		if since, err := strconv.ParseInt(r.meta[i].Value, 10, 64); err == nil {
			v.Over = min(v.Age, age(now, store.Timestamp(since)))
		}
	}
	return v
}

// burnLapsed burns what has expired below a version that is to be deleted (rule 4). Else it would be
// seen again, and then go.
func (b *Bucket) burnLapsed(ctx context.Context, key []byte, id ID, still func() bool) error {
	settings, err := b.rows.Settings(ctx)
	if err != nil {
		return err
	}
	s, err := ParseSettings(settings)
	if err != nil && !errors.Is(err, ErrPlain) {
		return err
	}
	rules := tidy.Rules{Of: s.Lifecycle.of(key, nil, time.Time{})}
	if !slices.ContainsFunc(rules.Of, func(r tidy.Rule) bool { return r.Noncurrent > 0 }) {
		return nil
	}
	now, err := b.o.c.Stamps(ctx, 1)
	if err != nil {
		return err
	}
	line, below, last := tidy.NewLine(&rules), false, ID{}
	q := listing.Query{Prefix: groupOf(key), Limit: 1000}
	for {
		page, err := b.rows.List(ctx, q)
		if err != nil {
			return err
		}
		for i := range page.Items {
			at, err := parseRow(page.Items[i].Key)
			if err != nil {
				return err
			}
			if at.note && at.id == last {
				line.Drop() // nothing relies on it
			}
			if at.beside() {
				continue
			}
			r, err := decode(page.Items[i].Value)
			if err != nil {
				return err
			}
			if !r.rank.Seen() {
				continue
			}
			v := r.version(at.id, now)
			if _, _, lapsed := line.Lapsed(&v); lapsed && below {
				if err := b.write(ctx, key, at.id, r.ashes(), still); err != nil {
					return err
				}
			}
			line.Add(0, &v)
			last, below = at.id, below || at.id == id
		}
		if page.Next == "" {
			return nil
		}
		q.Token = page.Next
	}
}
