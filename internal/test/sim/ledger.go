package sim

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
)

// try is a version of an object that a client tries to make. The body of the version is unique, so it identifies the
// version.
type try struct {
	key, body string
	marker    bool
	centre    int
	id        objects.ID
	acked     bool
	unknown   bool   // it may have been made, or may still be
	deletes   bool   // somebody has begun to delete it by its ID
	gone      [2]int // in each data centre, ledger.deleted once its deletion is acknowledged; 0: it is not
}

// ledger records all versions of objects in a bucket: which were acknowledged, may exist, or were deleted. Answers to
// reads are checked against the ledger.
type ledger struct {
	mu                     sync.Mutex
	byKey                  map[string][]*try
	byBody                 map[string]*try
	acked, unsure, shown   int
	absent, deleted, ended int
	finished               int64
}

func (l *ledger) begin(x *try) {
	l.mu.Lock()
	defer l.mu.Unlock()
	x.unknown = true
	l.byKey[x.key] = append(l.byKey[x.key], x)
	l.byBody[x.body] = x
}

func (l *ledger) end(x *try, id objects.ID, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		x.acked, x.id = true, id
		l.acked++
		return
	}
	x.unknown = errors.Is(err, listing.ErrOutcomeUnknown)
	l.unsure++
}

// newest returns what a read of the newest version of a key must find, if the read begins now in a data centre. The
// results are:
//   - must: the read must find this version or a newer one, or is free to find none if must is nil
//   - deleted: the read must not find a version whose deletion was acknowledged by now, which is one whose field gone
//     is at most deleted
func (l *ledger) newest(key string, centre int) (must *try, deleted int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, x := range l.byKey[key] {
		if x.acked && !x.deletes && x.centre == centre && (must == nil || must.id.Stamp < x.id.Stamp) {
			must = x
		}
	}
	return must, l.deleted
}

// read checks the answer to a read of the newest version of a key. must and deleted are the results of newest before
// the read. id and body are the version in the answer, and found is false if the answer was "not found".
func (l *ledger) read(key string, centre int, must *try, deleted int, id objects.ID, body string, found bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	must = l.still(must)
	if !found {
		l.absent++
		if must == nil || must.marker || slices.ContainsFunc(l.byKey[key], func(x *try) bool {
			return x.marker && (x.acked && x.id.Stamp > must.id.Stamp || !x.acked && x.unknown)
		}) {
			return nil
		}
		return fmt.Errorf("%q is not there, but version %s was acknowledged: %q", key, must.id, must.body)
	}
	l.shown++
	x := l.byBody[body]
	switch {
	case x == nil || x.key != key || x.marker:
		return fmt.Errorf("%q shows %q as version %s, which nobody put", key, body, id)
	case x.acked && x.id != id || !x.acked && !x.unknown:
		return fmt.Errorf("%q shows %q as version %s, which was put as %s (acknowledged: %v)", key, body, id, x.id, x.acked)
	case must != nil && id.Stamp < must.id.Stamp:
		return fmt.Errorf("%q shows version %s, but version %s was acknowledged: %q", key, id, must.id, must.body)
	case x.gone[centre] > 0 && x.gone[centre] <= deleted:
		return fmt.Errorf("%q shows version %s, which was deleted", key, id)
	}
	return nil
}

// still returns the version x, or nil if a client has begun to delete x.
func (l *ledger) still(x *try) *try {
	if x == nil || x.deletes {
		return nil
	}
	return x
}
