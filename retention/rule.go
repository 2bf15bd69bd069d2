// Package retention has rules by which old entries go: those whose key has a time, behind a prefix, that is longer ago
// than the rule keeps, or that were put longer ago. What a rule of times in keys drops of a bucket is one range of
// keys, so ranges of the map go as a whole.
//
// It is pure: who applies rules passes the time. rebalance.Options takes rules, and so do evenkeel.Options.
package retention

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/keytext"
)

// Rule says what is old in some buckets.
type Rule struct {
	// Bucket is the name of a bucket, or a pattern of names as path.Match takes it, such as sensors-*.
	Bucket string `yaml:"bucket"`
	// Prefix is what the keys begin with; empty: nothing. All keys with it must go on with a time, unless Time is Written.
	Prefix keytext.Key `yaml:"prefix"`
	// Keep is for how long entries stay; above zero. An entry goes once all of the time that its key names, such as a
	// day, is longer ago.
	Keep time.Duration `yaml:"keep"`
	// Time is the form of the time that the keys go on with, in UTC:
	//   - a layout of package time, of fixed width, from the year on: 2006-01-02, 2006/01/02/15, 20060102T150405;
	//   - ENCODING-UNIT, a number. ENCODING is decimal (as many digits as the unit has at present, and then another
	//     character), binary (8 bytes, big-endian) or tuple (keys.Int). UNIT is what has passed since 1970: day, hour, s,
	//     ms, us or ns; or snowflake, an id of keys.Snowflakes;
	//   - Written: keys need have no time. An entry goes once its last put is longer ago.
	Time string `yaml:"time"`
	// NewestFirst: numbers are complements, so that the newest comes first: keys.Desc of a tuple, all bits inverted of a
	// binary one, 999… minus a decimal one.
	NewestFirst bool `yaml:"newest-first"`
}

// Parse reads rules as YAML: "rules" is a list of maps with bucket, prefix (\xHH is a byte), keep (720h), time and
// newest-first. It fails like Check, and if there are none.
func Parse(text []byte) ([]Rule, error) {
	var file struct {
		Rules []Rule `yaml:"rules"`
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
	return file.Rules, Check(file.Rules)
}

// Check returns what is wrong with rules, and how to mend it; nil: nothing.
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

// String describes the rule.
func (r *Rule) String() string {
	order := ""
	if r.NewestFirst {
		order = ", newest first"
	}
	return fmt.Sprintf("bucket %s, prefix %q, keep %v, time %s%s", r.Bucket, r.Prefix.String(), r.Keep, r.Time, order)
}

// Applies reports whether the rule is about a bucket.
func (r *Rule) Applies(bucket string) bool {
	ok, err := path.Match(r.Bucket, bucket)
	return ok && err == nil
}

// Old returns the keys that are old at a time: from <= key < to, where an empty to is no end. some is false if there
// can be none. By the time of the put these are all keys that the rule is about. The rule must be valid (Check).
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

// TimeOf returns the time in a key. It fails if the key does not have the rule's form, and if the time is so near to
// the beginning of its unit that the unit must be another one.
func (r *Rule) TimeOf(key []byte) (time.Time, error) {
	f, err := r.form()
	if err != nil {
		return time.Time{}, err
	}
	rest, there := bytes.CutPrefix(key, r.Prefix)
	if !there {
		return time.Time{}, fmt.Errorf("key %s does not begin with %q", keytext.Format(key), r.Prefix.String())
	}
	t, err := f.read(rest)
	if err == nil && t.Before(f.least()) {
		err = fmt.Errorf("that is %s, so it is hardly of this unit", t.UTC().Format(time.RFC3339))
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("key %s has no time of the form %s behind the prefix %q: %w", keytext.Format(key),
			r.Time, r.Prefix.String(), err)
	}
	return t, nil
}

// overlaps reports whether two valid rules may be about the same keys. It takes a character class for any character.
func (r *Rule) overlaps(o *Rule) bool {
	return (bytes.HasPrefix(r.Prefix, o.Prefix) || bytes.HasPrefix(o.Prefix, r.Prefix)) &&
		meet(pattern(r.Bucket), pattern(o.Bucket))
}

// The parts of a pattern are characters, or one of these.
const (
	anyText rune = -1 - iota
	anyOne
)

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

// meet reports whether one name fits two patterns.
func meet(a, b []rune) bool {
	// to[k]: what is left of a, and b[k:], may be the same.
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
			case i < len(a) && k < len(b):
				to[k] = next[k+1] && (a[i] == b[k] || a[i] == anyOne || b[k] == anyOne)
			}
		}
	}
	return to[0]
}
