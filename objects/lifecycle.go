package objects

import (
	"cmp"
	"context"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/internal/wire"
	"github.com/evenkeel/evenkeel/objects/internal/tidy"
	"github.com/evenkeel/evenkeel/store"
)

// Lifecycle is what a bucket's owner wants to go after a time, as S3 has it. It is stored in the
// bucket's settings. Where several rules are for a version each of them counts.
type Lifecycle []Rule

// Rule is for objects whose keys begin with Prefix. Zero values ask for nothing.
type Rule struct {
	// ID is unique in its Lifecycle.
	ID       string
	Disabled bool
	Prefix   string
	// MinSize and Below bound the sizes of objects: MinSize <= size < Below, if Below is not 0.
	MinSize, Below int64
	// Tags: the rule is for objects that have all of them, with Days or Date only. A change of an object's
	// tags counts from a minute later on.
	Tags []Pair
	// Form is how the rule was written: it changes nothing.
	Form byte
	// Days is the age at which objects are hidden, counted to the next midnight in UTC; or they
	// are from Date on, a midnight.
	Days int
	Date time.Time
	// Unmark: delete markers with nothing older are removed.
	Unmark bool
	// NoncurrentDays is how long a version may be older than the newest one; Newer is how many
	// of those stay whatever their age.
	NoncurrentDays, Newer int
	// AbandonDays is the age at which an upload that was not completed is aborted.
	AbandonDays int
}

// Limits of a Lifecycle.
const (
	MaxRules       = 100
	MaxRuleIDBytes = 255
	MaxNewer       = tidy.MostNewer
	// MaxRuleTags is how many tags a rule may ask for.
	MaxRuleTags = 10
	// MaxLifecycleBytes bounds its encoding: of each rule the ID, the prefix, the tags, and 10 to 30 bytes.
	MaxLifecycleBytes = 15 << 10
	// mostDays keeps durations within their range; nothing is older.
	mostDays = 100_000
	day      = 24 * time.Hour
)

// ruleFlags are the flags of an encoded rule.
const (
	ruleDisabled = 1 << iota
	ruleUnmark
	ruleDate
)

// byTags reports whether a rule asks for tags.
func (l Lifecycle) byTags() bool {
	return slices.ContainsFunc(l, func(r Rule) bool { return len(r.Tags) > 0 })
}

// encode returns the encoding: the count (uvarint), then of each rule flags, form, ID, prefix, seven
// numbers and, if a rule of them asks for tags, its tags.
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

func decodeLifecycle(b []byte, byTags bool) (l Lifecycle, ok bool) {
	d := decoder{wire.Shortest{Of: b}}
	n := d.Uint()
	for i := uint64(0); i < n && i < MaxRules && len(d.Rest()) >= 2; i++ {
		flags, form := d.Rest()[0], d.Rest()[1]
		d.At += 2
		r := Rule{Form: form, Disabled: flags&ruleDisabled != 0, Unmark: flags&ruleUnmark != 0}
		r.ID, r.Prefix = d.String(MaxRuleIDBytes), d.String(MaxKeyBytes)
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
		r.NoncurrentDays, r.Newer = int(number(math.MaxInt32)), int(number(MaxNewer))
		r.AbandonDays = int(number(math.MaxInt32))
		if byTags {
			r.Tags = d.pairs(maxTagBytes)
			d.Bad = d.Bad || len(r.Tags) > MaxRuleTags
		}
		l = append(l, r)
	}
	return l, !d.Bad && len(d.Rest()) == 0 && n > 0 && n == uint64(len(l)) && l.byTags() == byTags
}

// check refuses what is no Lifecycle, or too large.
func (l Lifecycle) check() error {
	if len(l) > MaxRules {
		return store.Errorf(store.InvalidArgument, "a lifecycle of %d rules: at most %d", len(l), MaxRules)
	}
	for i := range l {
		r := &l[i]
		switch {
		case r.ID == "" || len(r.ID) > MaxRuleIDBytes:
			return store.Errorf(store.InvalidArgument, "a rule has an ID of %d bytes: 1 to %d", len(r.ID), MaxRuleIDBytes)
		case slices.ContainsFunc(l[:i], func(other Rule) bool { return other.ID == r.ID }):
			return store.Errorf(store.InvalidArgument, "two rules have the ID %q", r.ID)
		case len(r.Prefix) > MaxKeyBytes:
			return store.Errorf(store.InvalidArgument, "rule %q has a prefix of %d bytes: at most %d", r.ID,
				len(r.Prefix), MaxKeyBytes)
		case min(r.Days, r.NoncurrentDays, r.AbandonDays) < 0 || max(r.Days, r.NoncurrentDays, r.AbandonDays) > math.MaxInt32:
			return store.Errorf(store.InvalidArgument, "rule %q has a number of days that is negative or too large", r.ID)
		case r.Newer < 0 || r.Newer > MaxNewer || r.Newer > 0 && r.NoncurrentDays == 0:
			return store.Errorf(store.InvalidArgument, "rule %q keeps %d newer versions: 0 to %d, with NoncurrentDays",
				r.ID, r.Newer, MaxNewer)
		case r.MinSize < 0 || r.Below < 0 || r.Below > 0 && r.MinSize >= r.Below:
			return store.Errorf(store.InvalidArgument, "rule %q is for sizes from %d to below %d: there are none", r.ID,
				r.MinSize, r.Below)
		case len(r.Tags) > MaxRuleTags || len(r.Tags) > 0 && (r.Unmark || r.NoncurrentDays > 0 || r.AbandonDays > 0):
			return store.Errorf(store.InvalidArgument, "rule %q has %d tags: at most %d, and nothing but Days or a Date",
				r.ID, len(r.Tags), MaxRuleTags)
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
	if n := len(l.encode()); n > MaxLifecycleBytes {
		return store.Errorf(store.InvalidArgument, "the rules have %d bytes together: at most %d", n, MaxLifecycleBytes)
	}
	return nil
}

// Lifecycle returns the rules of a bucket of objects, in their order; none: it has none. It mostly
// needs no I/O. It fails like Status.
func (o *Objects) Lifecycle(ctx context.Context, name string) (Lifecycle, error) {
	b, err := o.c.Bucket(name).Settings(ctx)
	if err != nil {
		return nil, err
	}
	s, err := ParseSettings(b)
	return s.Lifecycle, err
}

// SetLifecycle gives a bucket other rules; none: it has none any more. Once it has returned all
// processes act on them, but for what a cleaner has begun to do a minute ago. It fails like SetStatus.
func (o *Objects) SetLifecycle(ctx context.Context, name string, l Lifecycle) error {
	if err := l.check(); err != nil {
		return err
	}
	return o.change(ctx, name, func(s *Settings) { s.Lifecycle = l })
}

func days(n int) time.Duration { return time.Duration(min(n, mostDays)) * day }

// is reports whether the rule is for an object with such a key and such tags.
func (r *Rule) is(key []byte, tags []Pair) bool {
	return !r.Disabled && strings.HasPrefix(string(key), r.Prefix) &&
		!slices.ContainsFunc(r.Tags, func(t Pair) bool { return !slices.Contains(tags, t) })
}

// of returns the rules for an object whose newest version has such tags, as cleaners act on them now.
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
		case r.Days > 0: // what was made at a time goes at the midnight that follows the days
			one.Expire = days(r.Days) + now.Sub(now.UTC().Truncate(day))
		case !r.Date.IsZero() && !now.Before(r.Date):
			one.Expire = 1
		}
		rules = append(rules, one)
	}
	return rules
}

// abandons returns the age at which an upload is ended; 0: never.
func (l Lifecycle) abandons(key []byte) (least time.Duration) {
	for i := range l {
		r := &l[i]
		if r.AbandonDays > 0 && r.is(key, nil) {
			least = cmp.Or(min(least, days(r.AbandonDays)), days(r.AbandonDays))
		}
	}
	return least
}

// Expires returns when the newest version of an object will be hidden, and the ID of the rule that
// says so; a zero time: never. Info must have the tags.
func (l Lifecycle) Expires(i *Info) (at time.Time, id string) {
	v := tidy.Version{Marker: i.Marker, Size: i.Size}
	for n := range l {
		r := &l[n]
		fits := (&tidy.Rule{MinSize: r.MinSize, Below: r.Below}).Fits(&v)
		if i.Marker || !fits || !r.is(i.Key, i.Tags()) {
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
