package adopt

import (
	"context"

	"github.com/evenkeel/evenkeel/store"
)

// joined presents several targets, such as a table for each month, as one. It has the parts (partitions) of the first
// table, then those of the second, and so on.
type joined struct{ all []Target }

// Join returns one target that has the rows of all given targets, such as a table for each month. Its parts are the
// parts of the first target, then those of the second, and so on. All targets must have keys and values of the same
// form.
func Join(all ...Target) Target { return joined{all} }

func (j joined) Parts() (n int) {
	for _, t := range j.all {
		n += t.Parts()
	}
	return n
}

// of returns the target that has the part with the given number, and the part's number within that target. A part is,
// for example, a partition of a table. The parts of all targets are numbered one target after the other.
func (j joined) of(part int) (Target, int) {
	for _, t := range j.all {
		if part < t.Parts() {
			return t, part
		}
		part -= t.Parts()
	}
	panic("no such part")
}

func (j joined) Page(ctx context.Context, part int, s Span, limit int, values bool) ([]Row, error) {
	t, part := j.of(part)
	return t.Page(ctx, part, s, limit, values)
}

func (j joined) Get(ctx context.Context, part int, key []byte) (Row, bool, error) {
	t, part := j.of(part)
	return t.Get(ctx, part, key)
}

func (j joined) Same(a, b []byte) bool { return j.all[0].Same(a, b) }

func (j joined) Home(key []byte) (part int, why Refusal) {
	part, why = -1, NoRow
	first := 0
	for _, t := range j.all {
		p, w := t.Home(key)
		switch {
		case w == NoHome, w == "" && part >= 0:
			return -1, NoHome
		case w == "":
			part, why = first+p, ""
		}
		first += t.Parts()
	}
	return part, why
}

func (j joined) Takes(key, value []byte) Refusal { return j.all[0].Takes(key, value) }

func (j joined) Write(ctx context.Context, part int, rows []store.Row) error {
	t, part := j.of(part)
	return t.Write(ctx, part, rows)
}
