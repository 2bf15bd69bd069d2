package rebalance

import (
	"fmt"
	"math"
	"strings"
)

// A Problem is one fault of a layout or a plan. Path says where the fault is in the JSON form, like
// partitions[3].quanta[0].rows. Text says what is wrong.
type Problem struct {
	Path, Text string
}

func (p Problem) String() string {
	if p.Path == "" {
		return p.Text
	}
	return p.Path + ": " + p.Text
}

// Problems is an error that lists all faults of a layout or a plan, one to a line.
type Problems []Problem

func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = p[i].String()
	}
	return strings.Join(lines, "\n")
}

// maxRate is the largest rate per second, load or horizon of a valid layout and its limits. Sums and products of such
// numbers are then small enough for a float64 to be exact to a row.
const maxRate = 1e12

// Validate returns all faults of a layout (a bucket's partitions with their sizes) and its limits, in the order of the
// layout file, or nil if there are none. Planners need a valid layout.
func Validate(l *Layout, limits Limits) Problems {
	v := validator{seen: map[string]int{}}
	v.limits(limits)
	if len(l.Partitions) == 0 {
		v.add("partitions", "there must be at least one")
	}
	for i := range l.Partitions {
		v.partition(l.Partitions, i)
	}
	return v.problems
}

type validator struct {
	problems Problems
	seen     map[string]int // the index of each partition by its id
	total    int64
	tooMany  bool
}

func (v *validator) add(path, format string, args ...any) {
	v.problems = append(v.problems, Problem{path, fmt.Sprintf(format, args...)})
}

// rate records a fault if a rate is below `least` or above maxRate. The function path returns the place of the rate in
// the JSON form; it is called only if there is a fault.
func (v *validator) rate(path func() string, rate, least float64) {
	switch {
	case math.IsNaN(rate) || math.Abs(rate) > maxRate:
		v.add(path(), "is %g, beyond %g", rate, maxRate)
	case rate < least:
		v.add(path(), "is negative: %g", rate)
	}
}

func (v *validator) limits(l Limits) {
	count := func(name string, value, least int64) {
		switch {
		case value > MaxCount:
			v.add("limits."+name, "is %d, more than %d", value, MaxCount)
		case value < least:
			v.add("limits."+name, "is %d, must be at least %d", value, least)
		}
	}
	count("max_rows", l.MaxRows, 1)
	count("min_rows", l.MinRows, 0)
	count("target_rows", l.TargetRows, 0)
	if l.MinRows > l.MaxRows && l.MaxRows >= 1 {
		v.add("limits.min_rows", "is %d, above max_rows, which is %d", l.MinRows, l.MaxRows)
	}
	v.rate(func() string { return "limits.max_writes_per_s" }, l.MaxWritesPerS, 0)
	v.rate(func() string { return "limits.horizon_s" }, l.HorizonS, 0)
}

func (v *validator) partition(all []Partition, i int) {
	p := &all[i]
	path := func() string { return fmt.Sprintf("partitions[%d]", i) }
	if p.ID == "" {
		v.add(path()+".id", "is empty")
	} else if j, twice := v.seen[p.ID]; twice {
		v.add(path()+".id", "%q is the id of partitions[%d] too", p.ID, j)
	} else {
		v.seen[p.ID] = i
	}

	if len(p.Start) > maxKeyBytes {
		v.add(path()+".start", "has %d bytes, more than %d", len(p.Start), maxKeyBytes)
	}
	if i == 0 {
		if p.Start != "" {
			v.add(path()+".start", "is %q: a gap, no partition holds the keys below it", p.Start)
		}
	} else if before := all[i-1].Start; p.Start == before {
		v.add(path()+".start", "is %q, like the start before it: the two partitions overlap", p.Start)
	} else if p.Start < before {
		v.add(path()+".start", "is %q, below the start before it, %q: partitions must be in the order of their keys",
			p.Start, before)
	}

	next, bounded := Key(""), i+1 < len(all)
	if bounded {
		next = all[i+1].Start
	}
	if p.End != nil && *p.End != next {
		switch {
		case !bounded:
			v.add(path()+".end", "is %q: a gap, no partition holds the keys from it on; the last end is empty", *p.End)
		case *p.End != "" && *p.End < next:
			v.add(path()+".end", "is %q: a gap, no partition holds the keys from it up to the next start, %q",
				*p.End, next)
		default:
			v.add(path()+".end", "is %q, beyond the next start, %q: the two partitions overlap", *p.End, next)
		}
	}
	// If starts are out of order, each quantum would be reported as well.
	bounded = bounded && next > p.Start

	for j, q := range p.Quanta {
		at := func(field string) string { return fmt.Sprintf("partitions[%d].quanta[%d].%s", i, j, field) }
		switch {
		case len(q.Key) > maxKeyBytes:
			v.add(at("key"), "has %d bytes, more than %d", len(q.Key), maxKeyBytes)
		case j > 0 && q.Key == p.Quanta[j-1].Key:
			v.add(at("key"), "is %q, like the key before it: a duplicate", q.Key)
		case j > 0 && q.Key < p.Quanta[j-1].Key:
			v.add(at("key"), "is %q, below the key before it, %q: quanta must be in the order of their keys",
				q.Key, p.Quanta[j-1].Key)
		}
		if q.Key < p.Start {
			v.add(at("key"), "is %q, below the partition's start, %q", q.Key, p.Start)
		} else if bounded && q.Key >= next {
			v.add(at("key"), "is %q, not below the next partition's start, %q: the two partitions overlap", q.Key, next)
		}
		switch {
		case q.Rows < 0:
			v.add(at("rows"), "is negative: %d", q.Rows)
		case q.Rows > MaxCount:
			v.add(at("rows"), "is %d, more than %d", q.Rows, MaxCount)
		case v.tooMany:
		case v.total+q.Rows > MaxCount:
			v.tooMany = true
			v.add(at("rows"), "makes the bucket larger than %d rows", MaxCount)
		default:
			v.total += q.Rows
		}
	}

	v.rate(func() string { return path() + ".writes_per_s" }, p.WritesPerS, 0)
	v.rate(func() string { return path() + ".growth_rows_per_s" }, p.GrowthRowsPerS, -maxRate)
}
