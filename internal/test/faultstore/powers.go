package faultstore

import (
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
	return page(ctx, l.f, Partitions,
		func(ctx context.Context) ([]store.Partition, error) { return l.inner.Partitions(ctx, after, limit) })
}

// withPowers returns s with those optional interfaces that its inner store has, so that a type assertion on the result
// tells what the inner store can do. Methods cannot be removed at run time, so each combination of interfaces has a
// type.
func withPowers(s *faulty) store.Store {
	e, hasE := s.inner.(store.EachQuorum)
	l, hasL := s.inner.(store.PartitionLister)
	we, wl := wide{s.f, e}, lister{s.f, l}
	switch {
	case hasE && hasL:
		return struct {
			*faulty
			wide
			lister
		}{s, we, wl}
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
	}
	return s
}
