// Package retention has rules by which old entries are deleted. An entry is too old if the time in its key, behind a
// prefix, is longer ago than the rule allows. Another kind of rule goes by the time at which the entry was put. A rule
// for times in keys deletes an interval of keys of a bucket. So a partition whose keys all lie in the interval is
// emptied at once, without a search for old entries.
//
// The package is pure: programs that apply rules pass the time. evenkeel.Options takes rules, which a DB applies once
// an hour.
package retention

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/evenkeel/evenkeel/internal/keytext"
	"github.com/evenkeel/evenkeel/store"
)

// Rule says which entries of which buckets are too old, e.g. those of the buckets sensors-* after 720 hours. Programs
// that apply the rule delete these entries.
type Rule struct {
	// Bucket is the name of a bucket, or a pattern of names as path.Match takes it, such as sensors-*.
	Bucket string
	// Prefix selects the keys that begin with these bytes. An empty prefix selects all keys. Behind the prefix every
	// selected key must have a time, except if Time is Written.
	Prefix []byte
	// Keep is how long entries stay. It must be above zero. If a key names a period of time, such as a day, its entry
	// stays until the whole period is longer ago than Keep.
	Keep time.Duration
	// Time is the form of the time, in UTC, that keys have behind the prefix:
	//   - a layout of package time, of fixed width, from the year on: 2006-01-02, 2006/01/02/15, 20060102T150405;
	//   - ENCODING-UNIT, a number, such as decimal-ms. ENCODING is decimal (as many digits as the unit has at present,
	//     and then another character), binary (8 bytes, big-endian) or tuple (keys.Int). UNIT is the unit of the time
	//     since 1970: day, hour, s, ms, us or ns; or snowflake, for an id of keys.Snowflakes;
	//   - Written: keys need have no time. An entry is dropped once its last put is longer ago than Keep.
	Time string
	// NewestFirst means that keys have the complement of the number of the time, so that the newest key comes first.
	// The complement is keys.Desc for a tuple, all bits inverted for a binary number, and 999… minus the number for a
	// decimal number.
	NewestFirst bool
}

// entry is a Rule as it stands in a text in YAML, in which the prefix is text, too.
type entry struct {
	Bucket      string        `yaml:"bucket"`
	Prefix      keytext.Key   `yaml:"prefix"`
	Keep        time.Duration `yaml:"keep"`
	Time        string        `yaml:"time"`
	NewestFirst bool          `yaml:"newest-first"`
}

// Parse returns the rules in a YAML text. The text has a list with the name "rules". Each rule has the fields bucket,
// prefix (in which \xHH is a byte), keep (such as 720h), time and newest-first. Parse fails if the text has no rules or
// an unknown field, or if Check finds a fault.
func Parse(text []byte) ([]Rule, error) {
	var file struct {
		Rules []entry `yaml:"rules"`
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("rules are YAML, such as `rules: [{bucket: sensors-*, prefix: day/, keep: 720h, "+
			"time: 2006-01-02}]`: %w", err)
	}
	if len(file.Rules) == 0 {
		return nil, errors.New("there are no rules: give a list with the name rules")
	}
	rules := make([]Rule, len(file.Rules))
	for i, e := range file.Rules {
		rules[i] = Rule{Bucket: e.Bucket, Prefix: e.Prefix, Keep: e.Keep, Time: e.Time, NewestFirst: e.NewestFirst}
	}
	return rules, Check(rules)
}

// Check returns nil if the rules can be used together. Otherwise it returns an error that says which rule is wrong and
// how to correct it. Two rules that may apply to the same keys must agree in Keep, Time and NewestFirst.
func Check(rules []Rule) error {
	for i := range rules {
		r := &rules[i]
		if err := r.check(); err != nil {
			return fmt.Errorf("rule %d (%s): %w", i+1, r, err)
		}
		for k := range rules[:i] {
			if o := &rules[k]; r.overlaps(o) && (r.Keep != o.Keep || r.Time != o.Time || r.NewestFirst != o.NewestFirst) {
				return fmt.Errorf("rules %d (%s) and %d (%s) may be about the same keys, and differ: give buckets or prefixes "+
					"of which none is part of the other, or make one rule of them", k+1, o, i+1, r)
			}
		}
	}
	return nil
}

// check returns nil if the rule is valid by itself, apart from other rules. Otherwise it returns an error that says
// what is wrong with the rule.
func (r *Rule) check() error {
	switch _, err := path.Match(r.Bucket, ""); {
	case r.Bucket == "":
		return errors.New("bucket is missing: a name, or a pattern such as sensors-*; * is all buckets")
	case err != nil:
		return fmt.Errorf("bucket %q is no pattern: * is any text, ? any character, [a-c] one of these, "+
			"and \\ takes the next one as it is", r.Bucket)
	case len(r.Prefix) > store.MaxKeyBytes:
		return fmt.Errorf("prefix has %d bytes: at most %d", len(r.Prefix), store.MaxKeyBytes)
	case r.Keep <= 0:
		return fmt.Errorf("keep is %v: give a time above zero, such as 720h; to delete all, use listd rm --recursive", r.Keep)
	}
	if r.Time == Written {
		if r.NewestFirst {
			return errors.New("newest-first is for numbers in keys, not for the time of the put")
		}
		return nil
	}
	_, err := r.form()
	return err
}

// String returns a description of the rule, for logs and errors.
func (r *Rule) String() string {
	order := ""
	if r.NewestFirst {
		order = ", newest first"
	}
	prefix := keytext.Format(r.Prefix)
	return fmt.Sprintf("bucket %s, prefix %q, keep %v, time %s%s", r.Bucket, prefix, r.Keep, r.Time, order)
}

// Applies reports whether the rule is for the bucket with the given name: whether the name matches the pattern
// Rule.Bucket.
func (r *Rule) Applies(bucket string) bool {
	ok, err := path.Match(r.Bucket, bucket)
	return ok && err == nil
}

// Old returns the interval of keys, from <= key < to, in which entries may be too old. An empty to means that the
// interval has no end. The parameter now is the present time. The result some is false if no key can be old.
//   - If the rule has times in keys, all entries of the interval are too old.
//   - If the rule goes by the time at which entries were put, the interval has all keys of the rule, old or not.
//
// The rule must be valid (see Check).
func (r *Rule) Old(now time.Time) (from, to []byte, some bool) {
	if r.Time == Written {
		return bytes.Clone(r.Prefix), store.PrefixEnd(r.Prefix), true
	}
	f, err := r.form()
	if err != nil {
		return nil, nil, false
	}
	from, to = f.before(now.Add(-r.Keep))
	if from == nil {
		return nil, nil, false
	}
	with := func(b []byte) []byte { return append(bytes.Clone(r.Prefix), b...) }
	if to == nil {
		return with(from), store.PrefixEnd(r.Prefix), true
	}
	return with(from), with(to), true
}

// TimeOf returns the time in the given key. It fails if the key has no time as the rule describes it. It also fails if
// the time is so early that the number in the key must be in another unit, such as seconds instead of milliseconds.
func (r *Rule) TimeOf(key []byte) (time.Time, error) {
	f, err := r.form()
	if err != nil {
		return time.Time{}, err
	}
	rest, there := bytes.CutPrefix(key, r.Prefix)
	if !there {
		return time.Time{}, fmt.Errorf("key %s does not begin with %q", keytext.Format(key), keytext.Format(r.Prefix))
	}
	t, err := f.read(rest)
	if err == nil && t.Before(f.least()) {
		err = fmt.Errorf("that is %s, so it is hardly of this unit", t.UTC().Format(time.RFC3339))
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("key %s has no time of the form %s behind the prefix %q: %w", keytext.Format(key),
			r.Time, keytext.Format(r.Prefix), err)
	}
	return t, nil
}

// overlaps reports whether the rules r and o may apply to the same keys. Both rules must be valid. A character class in
// a pattern of bucket names, such as [a-c], counts as any character. So overlaps may return true for rules that have no
// key in common.
func (r *Rule) overlaps(o *Rule) bool {
	return (bytes.HasPrefix(r.Prefix, o.Prefix) || bytes.HasPrefix(o.Prefix, r.Prefix)) &&
		meet(pattern(r.Bucket), pattern(o.Bucket))
}

// anyText and anyOne stand for the wildcards in a split pattern of bucket names, among the other characters of the
// pattern: anyText for any text (*), anyOne for any one character (?).
const (
	anyText rune = -1 - iota
	anyOne
)

// pattern splits a pattern of bucket names, such as sensors-*, into a list: each character by itself, anyText for *,
// and anyOne for ? or for a character class. See path.Match for the notation.
func pattern(text string) (out []rune) {
	in := []rune(text)
	for i := 0; i < len(in); i++ {
		switch c := in[i]; c {
		case '*':
			out = append(out, anyText)
		case '?':
			out = append(out, anyOne)
		case '[':
			for i++; i < len(in) && in[i] != ']'; i++ {
				if in[i] == '\\' {
					i++
				}
			}
			out = append(out, anyOne)
		case '\\':
			i++
			out = append(out, in[i])
		default:
			out = append(out, c)
		}
	}
	return out
}

// meet reports whether any name matches both patterns a and b of bucket names. The patterns are split: anyText in them
// stands for any text, anyOne for any one character.
func meet(a, b []rune) bool {
	// to[k] says whether some text matches both a[i:] and b[k:].
	to := make([]bool, len(b)+1)
	for i := len(a); i >= 0; i-- {
		next := to
		to = make([]bool, len(b)+1)
		for k := len(b); k >= 0; k-- {
			switch {
			case i == len(a) && k == len(b):
				to[k] = true
			case i < len(a) && a[i] == anyText:
				to[k] = next[k] || k < len(b) && to[k+1]
			case k < len(b) && b[k] == anyText:
				to[k] = to[k+1] || i < len(a) && next[k]
			case k < len(b): // next[k+1] is false behind the end of a
				to[k] = next[k+1] && (a[i] == b[k] || a[i] == anyOne || b[k] == anyOne)
			}
		}
	}
	return to[0]
}
