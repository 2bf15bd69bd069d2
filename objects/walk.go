package objects

// A cleaner reads rows in their order and takes the objects out of them, one after the other (walk). It reads either
// all rows of a bucket (cleaner.PassFrom), or the rows of the objects to which hints lead (cleaner.PassOver).
//
// PassOver follows hints for neighbours together, by pages. For example, there are hints for the keys a, b, c and x,
// with thousands of objects between c and x:
//
//	hints:  a b c                  x
//	rows:   a b c d e f g … u v w  x y z
//	reads:  ─────                  ─
//
// One read has a, b and c, and a second one x. Before a read nobody knows whether the next hints are neighbours. So
// pages begin small, and grow as long as they meet hints.

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// leastPage is the number of rows that cleaner.PassOver reads at once as long as it knows nothing of the objects that
// follow. Four rows are enough for an object that was put twice: two versions, and a row which proves that one of them
// is deleted. The fourth row shows that the object ends before it.
const leastPage = 4

// lookAround says how often cleaner.PassOver tries to read the objects of neighbouring keys together. Of the keys that
// turn out to have no neighbour, it tries so for one in 8: it also reads the rows behind the object of this key. If
// these belong to the objects of the next keys, PassOver reads on in this way. Otherwise it reads the next objects one
// by one.
const lookAround = 8

const (
	// walkers is the largest number of groups into which cleaner.PassOver divides its keys, to work on the groups
	// concurrently. Between two data centres each read takes a round trip, so many concurrent reads save time.
	walkers = 64
	// leastKeys is the smallest number of keys in a group, except for the last group.
	leastKeys = 32
	// lookBytes is the largest length of a page of rows, in bytes. All concurrent walkers have a page in memory at the
	// same time.
	lookBytes = 256 << 10
)

// PassOver cleans only the objects with the given keys, as a pass over the whole bucket would. The keys must ascend,
// and mostly come from Hints. PassOver also cleans objects between these keys if it reads them anyway. If rows can't be
// read, PassOver goes on with the other objects, and fails with Corrupt at the end. It calls CleanOptions.Before and
// Later from several goroutines at a time, and never calls Report.
func (c *cleaner) PassOver(ctx context.Context, keys []string) (done care.Cleaned, err error) {
	ctx = storekit.MakingRoom(ctx)
	now, err := c.begin(ctx)
	if err != nil || len(keys) == 0 {
		return done, err
	}
	if _, err := c.learn(ctx); err != nil {
		return done, err
	}
	var mu sync.Mutex
	var g errgroup.Group // without a context: each part goes on where others fail
	for part := range slices.Chunk(keys, max(leastKeys, (len(keys)+walkers-1)/walkers)) {
		one := &cleaner{b: c.b, o: c.o, least: c.least, known: c.known, clock: c.clock}
		one.o.Report = nil
		g.Go(func() error {
			did, err := one.passOver(ctx, now, part)
			mu.Lock()
			defer mu.Unlock()
			done.Add(&did)
			return err
		})
	}
	err = g.Wait()
	return done, err
}

// passOver cleans the objects with the given keys, which ascend, one after the other. PassOver calls it for groups of
// keys concurrently, each time on a cleaner of its own.
func (c *cleaner) passOver(ctx context.Context, now store.Timestamp, keys []string) (done care.Cleaned, err error) {
	var unread error
	w, limit, alone := walk{c: c, now: now}, leastPage, 0 // alone: hints in a row without a neighbour
	end := store.PrefixEnd(groupOf([]byte(keys[len(keys)-1])))
	for q := (listing.Query{}); len(keys) > 0; {
		single := alone%lookAround != 0
		if q.Token == "" {
			q.From, q.To = groupOf([]byte(keys[0])), end
			if single {
				q.To = store.PrefixEnd(q.From)
			}
		}
		q.Limit, q.Bytes = limit, lookBytes
		next, err := w.page(ctx, q, &done)
		if store.KindOf(err) == store.Corrupt && ctx.Err() == nil {
			if single { // the object of this hint can't be read, else perhaps a neighbour
				keys, unread = keys[1:], cmp.Or(unread, err)
			}
			w.drop()
			alone, limit, q.Token = alone+1, leastPage, ""
			continue
		}
		if err != nil || next == "" && !single {
			return done, cmp.Or(err, unread)
		}
		if next != "" && w.key == nil {
			q.Token = next // the page was empty
			continue
		}
		// The rows of the page's last object may go on behind the page. If that object has no hint, the object of the
		// next hint is looked for by a new query.
		at, hinted := slices.BinarySearch(keys, string(w.key))
		switch {
		case next == "":
			keys, alone = keys[1:], alone+1
		case hinted:
			if at > 0 {
				alone = 0
			}
			keys, limit, q.Token = keys[at:], min(4*limit, 1000), next
			continue
		case at > 1:
			keys, alone = keys[at:], 0
		default:
			keys, alone = keys[at:], alone+1
		}
		w.drop()
		limit, q.Token = max(limit/4, leastPage), ""
	}
	return done, unread
}

// walk collects the versions of one object after the other, from rows that are read in the order of their keys. Once
// walk has all versions of an object, it calls a cleaner, which deletes the versions that are due to be deleted.
type walk struct {
	c      *cleaner
	now    store.Timestamp
	key    []byte // of the present object, more rows of which may follow
	group  []member
	behind bool // the object has newer versions than the group
	// carried is true if the first version of group was handled before, with the newer versions of the same object. It
	// is the newest null version among them, and stays in group so that older null versions are deleted.
	carried bool
	still   func() bool // the deadline of the oldest page of the group; nil: no page was read
}

// page reads one page of rows by the query q, and cleans each object that ends in the page: it deletes the versions
// that are due. It adds to the counts in done. It returns the token of the next page, which is empty after the last
// page.
func (w *walk) page(ctx context.Context, q listing.Query, done *care.Cleaned) (next listing.Token, err error) {
	read := w.c.b.o.deadline(writeTimeout)
	if _, err := w.c.learn(ctx); err != nil {
		return "", err
	}
	page, err := w.c.b.rows.List(ctx, q)
	if err != nil {
		return "", err
	}
	for i := range page.Items {
		at, err := parseRow(page.Items[i].Key)
		if err != nil {
			done.Damaged++
			continue
		}
		if !bytes.Equal(at.key, w.key) {
			w.flush(ctx, false, done)
			w.key = bytes.Clone(at.key)
			done.Next = hex.EncodeToString(at.group)
		} else if len(w.group) >= mostOfGroup && !at.beside() {
			w.flush(ctx, true, done)
		}
		if w.still == nil {
			w.still = read // the deadline of the first page of the group
		}
		if w.group, err = w.c.add(w.group, &at, page.Items[i].Value, w.now); err != nil {
			done.Damaged++
		}
	}
	if page.Next == "" {
		w.flush(ctx, false, done)
	}
	return page.Next, w.c.pace(ctx, len(page.Items), done)
}

// flush cleans the object that was read last: it deletes the versions that are due. Then it forgets the versions that
// were read of the object. The parameter more is true if older versions of the object follow; then flush keeps the
// newest null version, by which older null versions are deleted. flush adds to the counts in done.
func (w *walk) flush(ctx context.Context, more bool, done *care.Cleaned) {
	if len(w.group) > 0 {
		w.c.tidy(ctx, w.key, w.group, w.behind, more, w.still, done)
		if w.carried {
			done.Seen--
		}
	}
	null := -1
	if more {
		null = slices.IndexFunc(w.group, func(m member) bool { return m.what.Null && m.what.Rank.Seen() && !m.what.Note })
	}
	rest := w.group[:0]
	if w.carried = null >= 0; w.carried {
		rest = append(rest, w.group[null])
	}
	w.group, w.behind, w.still = rest, more, nil
}

// drop forgets the versions of the object that was read last, and does not clean the object: perhaps not all of its
// rows were read.
func (w *walk) drop() { *w = walk{c: w.c, now: w.now, group: w.group[:0]} }
