package objects

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects/internal/tidy"
	"github.com/evenkeel/evenkeel/store"
)

// lapseMargin is a time by which a cleaner deletes a version later than a lifecycle rule says: five minutes. It is
// longer than a user's delete may take from its first read to its last write (docs/objects.md, rule 9). A user's delete
// does not wait for the margin.
const lapseMargin = 5 * writeTimeout

// knownSettings are the settings of a bucket by which a cleaner acts, and the time at which the cleaner first read
// them. Settings may change at any moment, and a pass may take hours. So a cleaner reads the settings again before each
// page of versions, and before each step such as a deletion.
type knownSettings struct {
	raw []byte // the settings as the bucket's root stores them
	Settings
	since wait.Instant
}

// learn reads the bucket's settings, mostly from memory. It returns true if they are the same as at the last read. It
// returns false if they have changed, or at the first read. Then the caller must not carry out what it decided by the
// former settings.
func (c *cleaner) learn(ctx context.Context) (same bool, err error) {
	now := c.b.o.now()
	raw, err := c.b.rows.Settings(ctx)
	if err != nil {
		return false, err
	}
	if c.known.since != (wait.Instant{}) && bytes.Equal(raw, c.known.raw) {
		return true, nil
	}
	s, err := parseSettings(raw)
	if err != nil {
		return false, err
	}
	c.known = knownSettings{raw, s, now}
	return false, nil
}

// rules returns the lifecycle rules for an object with the given key, and the times that the cleaner waits before it
// deletes something. tags are the tags of the object's newest version. Rules for older versions are left out until the
// cleaner has known them for five minutes (lapseMargin). By then, every delete that began under earlier rules has
// ended.
func (c *cleaner) rules(key []byte, tags []Pair) tidy.Rules {
	r := tidy.Rules{Grace: c.o.Grace, Settled: c.o.Settled, Unmark: c.known.Status == Never, Margin: lapseMargin}
	if c.o.Now {
		r.Soon, r.Old = care.SoonGrace, c.least
	}
	now := c.b.o.now()
	r.Of, r.Abandon = c.known.Lifecycle.of(key, tags, now.Wall), c.known.Lifecycle.abandons(key)
	if least, _ := now.Since(c.known.since); least < lapseMargin {
		for i := range r.Of {
			r.Of[i].Noncurrent = 0
		}
	}
	return r
}

// hiddenSince is the name of a header that tells when a delete marker was written by a lifecycle rule. The ID of such a
// marker does not tell this time, since it contains the timestamp of the hidden version. Headers of clients can't have
// this name.
const hiddenSince = ":hidden-since"

// hidesSince returns the header of a delete marker that a lifecycle rule writes at the time now (see hiddenSince).
func hidesSince(now store.Timestamp) []Pair {
	return []Pair{{hiddenSince, strconv.FormatInt(int64(now), 10)}}
}

// version returns a summary of a version, by which the package tidy decides whether to delete the version. r is the
// record of the version, and id its ID. Ages are counted up to now. Facts from other rows are not filled in: the
// version's tags, and what cleaners have recorded about the version.
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

// burnLapsed deletes the versions of an object that have expired by a lifecycle rule and are older than the version id.
// It is called before the version id is deleted (docs/objects.md, rule 4). Otherwise an expired version could become
// visible again by that deletion, and disappear later. The func named still reports whether there is time left. Once it
// returns false, burnLapsed writes nothing more.
func (b *Bucket) burnLapsed(ctx context.Context, key []byte, id ID, still func() bool) error {
	settings, err := b.rows.Settings(ctx)
	if err != nil {
		return err
	}
	s, err := parseSettings(settings)
	if err != nil && !errors.Is(err, ErrPlain) {
		return err
	}
	rules := tidy.Rules{Of: s.Lifecycle.of(key, nil, time.Time{})}
	if !slices.ContainsFunc(rules.Of, func(r tidy.Rule) bool { return r.Noncurrent > 0 }) {
		return nil
	}
	now, err := door.Client(b.o.c).Stamps(ctx, 1)
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
				line.Drop() // no version may expire because of this one
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
