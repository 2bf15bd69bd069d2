package faultstore

import (
	"bytes"
	"context"

	"github.com/evenkeel/evenkeel/store"
)

type wide struct {
	f     *Faults
	inner store.EachQuorum
}

func (w wide) EachQuorum() store.Rows { return rows{w.f, w.inner.EachQuorum()} }

type lister struct {
	f     *Faults
	inner store.PartitionLister
}

func (l lister) Partitions(ctx context.Context, after store.Partition, limit int) ([]store.Partition, error) {
	return page(ctx, l.f, Partitions, func(ctx context.Context) ([]store.Partition, error) { return l.inner.Partitions(ctx, after, limit) })
}

type comparer struct {
	f     *Faults
	inner store.ComparePutter
}

func (c comparer) ComparePut(ctx context.Context, p store.Partition, want []byte, row store.Row) error {
	want, row = bytes.Clone(want), cloneRows([]store.Row{row})[0]
	_, err := c.f.call(ctx, ComparePut, "", func(ctx context.Context) error { return c.inner.ComparePut(ctx, p, want, row) })
	return err
}

// withPowers gives s the optional powers of its inner store and no other, so
// that a type assertion tells the truth. A method can't be absent at run time:
// hence a type for each combination.
func withPowers(s *faulty) store.Store {
	e, hasE := s.inner.(store.EachQuorum)
	l, hasL := s.inner.(store.PartitionLister)
	c, hasC := s.inner.(store.ComparePutter)
	we, wl, wc := wide{s.f, e}, lister{s.f, l}, comparer{s.f, c}
	switch {
	case hasE && hasL && hasC:
		return struct {
			*faulty
			wide
			lister
			comparer
		}{s, we, wl, wc}
	case hasE && hasL:
		return struct {
			*faulty
			wide
			lister
		}{s, we, wl}
	case hasE && hasC:
		return struct {
			*faulty
			wide
			comparer
		}{s, we, wc}
	case hasL && hasC:
		return struct {
			*faulty
			lister
			comparer
		}{s, wl, wc}
	case hasE:
		return struct {
			*faulty
			wide
		}{s, we}
	case hasL:
		return struct {
			*faulty
			lister
		}{s, wl}
	case hasC:
		return struct {
			*faulty
			comparer
		}{s, wc}
	}
	return s
}
