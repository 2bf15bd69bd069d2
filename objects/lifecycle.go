package objects

import (
	"cmp"
	"context"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/wire"
	"github.com/evenkeel/evenkeel/objects/internal/tidy"
	"github.com/evenkeel/evenkeel/store"
)

// Lifecycle is a list of at most 100 rules that say after which time objects of a bucket are hidden or deleted, as in
// S3. It is stored in the bucket's settings. If several rules apply to the same version, each of them takes effect.
type Lifecycle []Rule

// Rule is one rule of a bucket's Lifecycle: it says what is hidden or deleted after which time, e.g. objects below
// logs/ after 30 days. It applies to objects whose keys begin with Prefix. A field with the zero value has no effect.
type Rule struct {
	// ID is the name of the rule, of at most 255 bytes, which is unique among the rules of the bucket.
	ID       string
	Disabled bool
	Prefix   string
	// MinSize and Below limit the rule to objects with MinSize <= size < Below, in bytes. Zero means no limit.
	MinSize, Below int64
	// Tags limit the rule to objects that have all of these tags, at most 10. A rule with Tags may have Days or Date
	// only. If the tags of an object change, the rule goes by the new tags from a minute later on.
	Tags []Pair
	// Form is the syntax in which the client wrote the rule, kept so that the rule can be returned in the same syntax.
	// It has no effect on objects.
	Form byte
	// Days is the age in days at which objects are hidden, rounded up to the next midnight in UTC. Date is an
	// alternative to Days: a midnight in UTC from which on objects are hidden.
	Days int
	Date time.Time
	// Unmark means that a delete marker is removed if the object has no older version.
	Unmark bool
	// NoncurrentDays is the number of days after which a noncurrent version is deleted, which is a version that is not
	// the newest any more. Newer is the number of noncurrent versions, counted from the newest, that stay whatever
	// their age: at most 100.
	NoncurrentDays, Newer int
	// AbandonDays is the age in days at which a multipart upload that was not completed is aborted. Zero means never.
	AbandonDays int
}

// Limits of a Lifecycle, which is the list of the lifecycle rules of a bucket.
const (
	// mostLifecycleBytes is the largest length of the encoded rules of a bucket, in bytes. Each rule takes its ID,
	// prefix and tags, and 10 to 30 bytes.
	mostLifecycleBytes = 15 << 10
	// mostDays is the largest number of days that a rule counts with, so that durations do not overflow. Higher numbers
	// act like mostDays, since no object is older.
	mostDays = 100_000
	day      = 24 * time.Hour
)

// This declaration compiles only if care.MaxNewer equals tidy.MostNewer. Both are the largest number of older versions
// that a lifecycle rule may keep: one is the limit for clients, the other is that of cleaners.
var _ [care.MaxNewer]struct{} = [tidy.MostNewer]struct{}{}

// Flags of a lifecycle rule, as bits of one byte in its encoding: the rule is disabled, has Unmark, or has a Date.
const (
	ruleDisabled = 1 << iota
	ruleUnmark
	ruleDate
)

// byAge reports whether a rule of l hides or deletes versions, or delete markers, once they are old enough. If so,
// cleaners must look at all rows of the bucket now and then. Hints, which lead a cleaner to single objects, are written
// when an object is written, and not when an object gets old.
func (l Lifecycle) byAge() bool {
	return slices.ContainsFunc(l, func(r Rule) bool {
		return !r.Disabled && (r.Days > 0 || !r.Date.IsZero() || r.Unmark || r.NoncurrentDays > 0)
	})
}

// byTags reports whether any rule of l applies only to objects with certain tags (Rule.Tags).
func (l Lifecycle) byTags() bool {
	return slices.ContainsFunc(l, func(r Rule) bool { return len(r.Tags) > 0 })
}

// encode returns the rules as bytes: their count (uvarint), then for each rule its flags, form, ID, prefix and seven
// numbers. If any rule has tags, the numbers of each rule are followed by its tags.
func (l Lifecycle) encode() []byte {
	byTags := l.byTags()
	b := binary.AppendUvarint(nil, uint64(len(l)))
	for i := range l {
		r := &l[i]
		flags, date := byte(0), uint64(0)
		if r.Disabled {
			flags |= ruleDisabled
		}
		if r.Unmark {
			flags |= ruleUnmark
		}
		if !r.Date.IsZero() {
			flags |= ruleDate
			date = uint64(r.Date.Unix() / int64(day/time.Second))
		}
		b = wire.AppendString(wire.AppendString(append(b, flags, r.Form), r.ID), r.Prefix)
		for _, n := range []uint64{
			uint64(r.MinSize), uint64(r.Below), uint64(r.Days), date, uint64(r.NoncurrentDays), uint64(r.Newer),
			uint64(r.AbandonDays),
		} {
			b = binary.AppendUvarint(b, n)
		}
		if byTags {
			b = appendPairs(b, r.Tags)
		}
	}
	return b
}

// decodeLifecycle returns the rules that Lifecycle.encode has encoded. byTags says whether the encoded rules have tags.
// The result ok is false if b is damaged.
func decodeLifecycle(b []byte, byTags bool) (l Lifecycle, ok bool) {
	d := decoder{wire.Shortest{Of: b}}
	n := d.Uint()
	for i := uint64(0); i < n && i < care.MaxRules && len(d.Rest()) >= 2; i++ {
		flags, form := d.Rest()[0], d.Rest()[1]
		d.At += 2
		r := Rule{Form: form, Disabled: flags&ruleDisabled != 0, Unmark: flags&ruleUnmark != 0}
		r.ID, r.Prefix = d.String(care.MaxRuleIDBytes), d.String(care.MaxKeyBytes)
		number := func(most int64) int64 {
			v := d.Uint()
			d.Bad = d.Bad || v > uint64(most)
			return int64(v) //nolint:gosec // checked
		}
		r.MinSize, r.Below = number(math.MaxInt64), number(math.MaxInt64)
		r.Days = int(number(math.MaxInt32))
		date := number(math.MaxInt32)
		if flags&ruleDate != 0 {
			r.Date = time.Unix(date*int64(day/time.Second), 0).UTC()
		}
		r.NoncurrentDays, r.Newer = int(number(math.MaxInt32)), int(number(care.MaxNewer))
		r.AbandonDays = int(number(math.MaxInt32))
		if byTags {
			r.Tags = d.pairs(maxTagBytes)
			d.Bad = d.Bad || len(r.Tags) > care.MaxRuleTags
		}
		l = append(l, r)
	}
	return l, !d.Bad && len(d.Rest()) == 0 && n > 0 && n == uint64(len(l)) && l.byTags() == byTags
}

// check fails with InvalidArgument if a rule of l is invalid, or if l has more than 100 rules. It also fails if the
// encoded rules take more than 15 KiB.
func (l Lifecycle) check() error {
	if len(l) > care.MaxRules {
		return store.Errorf(store.InvalidArgument, "a lifecycle of %d rules: at most %d", len(l), care.MaxRules)
	}
	for i := range l {
		r := &l[i]
		switch {
		case r.ID == "" || len(r.ID) > care.MaxRuleIDBytes:
			return store.Errorf(store.InvalidArgument, "a rule has an ID of %d bytes: 1 to %d", len(r.ID),
				care.MaxRuleIDBytes)
		case slices.ContainsFunc(l[:i], func(other Rule) bool { return other.ID == r.ID }):
			return store.Errorf(store.InvalidArgument, "two rules have the ID %q", r.ID)
		case len(r.Prefix) > care.MaxKeyBytes:
			return store.Errorf(store.InvalidArgument, "rule %q has a prefix of %d bytes: at most %d", r.ID,
				len(r.Prefix), care.MaxKeyBytes)
		case min(r.Days, r.NoncurrentDays, r.AbandonDays) < 0 || max(r.Days, r.NoncurrentDays, r.AbandonDays) > math.MaxInt32:
			return store.Errorf(store.InvalidArgument, "rule %q has a number of days that is negative or too large", r.ID)
		case r.Newer < 0 || r.Newer > care.MaxNewer || r.Newer > 0 && r.NoncurrentDays == 0:
			return store.Errorf(store.InvalidArgument, "rule %q keeps %d newer versions: 0 to %d, with NoncurrentDays",
				r.ID, r.Newer, care.MaxNewer)
		case r.MinSize < 0 || r.Below < 0 || r.Below > 0 && r.MinSize >= r.Below:
			return store.Errorf(store.InvalidArgument, "rule %q is for sizes from %d to below %d: there are none", r.ID,
				r.MinSize, r.Below)
		case len(r.Tags) > care.MaxRuleTags,
			len(r.Tags) > 0 && (r.Unmark || r.NoncurrentDays > 0 || r.AbandonDays > 0):
			return store.Errorf(store.InvalidArgument, "rule %q has %d tags: at most %d, and nothing but Days or a Date",
				r.ID, len(r.Tags), care.MaxRuleTags)
		case !r.Date.IsZero() && (r.Date.Unix() < 0 || r.Date.Unix()%int64(day/time.Second) != 0 || r.Date.Year() > 9999 ||
			r.Days > 0):
			return store.Errorf(store.InvalidArgument, "rule %q has the date %v: a midnight in UTC, and no days", r.ID, r.Date)
		}
	}
	for i := range l {
		if err := (&record{tags: l[i].Tags}).check(); err != nil {
			return err
		}
	}
	if n := len(l.encode()); n > mostLifecycleBytes {
		return store.Errorf(
			store.InvalidArgument, "the rules have %d bytes together: at most %d", n, mostLifecycleBytes)
	}
	return nil
}

// SetLifecycle replaces all lifecycle rules of a bucket by l. An empty l removes all rules. Once SetLifecycle has
// returned, all processes act by the new rules. Only a step that a cleaner began within the last minute may still
// follow the old rules. SetLifecycle fails like SetStatus.
func (o *Objects) SetLifecycle(ctx context.Context, name string, l Lifecycle) error {
	if err := l.check(); err != nil {
		return err
	}
	return o.change(ctx, name, func(s *Settings) { s.Lifecycle = l })
}

// days returns the duration of n days, or of mostDays if n is higher.
func days(n int) time.Duration { return time.Duration(min(n, mostDays)) * day }

// is reports whether the rule applies to an object with this key and these tags. It returns false if the rule is
// disabled, or is for other keys or tags. It does not check the size of the object.
func (r *Rule) is(key []byte, tags []Pair) bool {
	return !r.Disabled && strings.HasPrefix(string(key), r.Prefix) &&
		!slices.ContainsFunc(r.Tags, func(t Pair) bool { return !slices.Contains(tags, t) })
}

// of returns the lifecycle rules that apply to an object with this key, in the form that the package tidy needs. tags
// are the tags of the object's newest version. The parameter now is the present time: objects expire at a midnight.
func (l Lifecycle) of(key []byte, tags []Pair, now time.Time) (rules []tidy.Rule) {
	for i := range l {
		r := &l[i]
		if !r.is(key, tags) {
			continue
		}
		one := tidy.Rule{
			MinSize: r.MinSize, Below: r.Below, Unmark: r.Unmark, Noncurrent: days(r.NoncurrentDays), Newer: r.Newer,
		}
		switch {
		case r.Days > 0: // objects go at the midnight that follows the days
			one.Expire = days(r.Days) + now.Sub(now.UTC().Truncate(day))
		case !r.Date.IsZero() && !now.Before(r.Date):
			one.Expire = 1
		}
		rules = append(rules, one)
	}
	return rules
}

// abandons returns the age at which an upload for the key is aborted if it was not completed. If several rules give an
// age, the shortest counts. The result is 0 if no rule gives an age.
func (l Lifecycle) abandons(key []byte) (least time.Duration) {
	for i := range l {
		r := &l[i]
		if r.AbandonDays > 0 && r.is(key, nil) {
			least = cmp.Or(min(least, days(r.AbandonDays)), days(r.AbandonDays))
		}
	}
	return least
}

// Expires returns the time at which a lifecycle rule will hide the object's newest version, and the ID of the rule. The
// version is described by i, which must have the version's tags: listings leave out tags. The time is zero if no rule
// hides the version.
func (l Lifecycle) Expires(i *Info) (at time.Time, id string) {
	v := tidy.Version{Marker: i.Marker, Size: i.Size}
	for n := range l {
		r := &l[n]
		fits := (&tidy.Rule{MinSize: r.MinSize, Below: r.Below}).Fits(&v)
		if i.Marker || !fits || !r.is(i.Key, i.Meta().Tags) {
			continue
		}
		when := r.Date
		if r.Days > 0 {
			when = i.Modified().Add(days(r.Days))
			if midnight := when.Truncate(day); !when.Equal(midnight) {
				when = midnight.Add(day)
			}
		}
		if !when.IsZero() && (at.IsZero() || when.Before(at)) {
			at, id = when, r.ID
		}
	}
	return at, id
}
