package listing_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/cells"
	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/record"
	"github.com/evenkeel/evenkeel/internal/test/faultstore"
	"github.com/evenkeel/evenkeel/internal/test/faulttest"
	"github.com/evenkeel/evenkeel/internal/test/listtest"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// Each call of the store fails in turn, under every operation of a client that knows
// nothing yet. What reports success has happened, and its answer is the right one; what
// reports a definite failure has not happened; what reports an unknown outcome may have.
// Then the same operation is done again by the same client, and must end well.

// world is a store with what an operation is done on.
type world struct {
	t   *testing.T
	ctx context.Context
	s   store.Store
	c   *listing.Client
	id  store.BucketID // what some operations are about
}

// client takes a client that knows nothing yet.
func (w *world) client(o listing.Options) {
	var err error
	w.c, err = listing.New(w.s, o)
	require.NoError(w.t, err)
}

// fill makes the bucket b.
func (w *world) fill(cuts ...[]byte) {
	require.NoError(w.t, w.c.CreateBucket(w.ctx, "b", cuts...))
	w.id = w.owner("b").ID
}

func (w *world) owner(name string) door.Named {
	info, err := door.Client(w.c).Owner(w.ctx, name)
	require.NoError(w.t, err)
	return info
}

func (w *world) put(key, value string) {
	require.NoError(w.t, w.c.Bucket("b").Put(w.ctx, []byte(key), []byte(value)))
}

func (w *world) edit(f func(e partmap.Edit)) {
	m := mapclient.Of(w.c)
	root, err := m.Load(w.ctx, w.id)
	require.NoError(w.t, err)
	e := m.Edit(w.ctx, root)
	f(e)
	change, err := e.Change()
	require.NoError(w.t, err)
	require.NoError(w.t, m.Swap(w.ctx, change))
}

func (w *world) state(id store.BucketID, to partmap.State) {
	m := mapclient.Of(w.c)
	root, err := m.Load(w.ctx, id)
	require.NoError(w.t, err)
	change, err := mapclient.WithState(root, to, m.Stamp())
	require.NoError(w.t, err)
	require.NoError(w.t, m.Swap(w.ctx, change))
}

// name writes a name's record; a zero id: the name is free.
func (w *world) name(name string, id store.BucketID) {
	old := store.Record{}
	old, err := w.s.Read(w.ctx, store.Directory, []byte(name), store.Serial)
	if !errors.Is(err, store.NotFound) {
		require.NoError(w.t, err)
	}
	payload := append(id[:], make([]byte, 8)...)
	require.NoError(
		w.t, w.s.Swap(w.ctx, store.Directory, []byte(name), old.Version, record.Seal(1, record.Next(old.Version), payload)),
	)
}

// settled is a bucket of some ranges, one of them empty.
func settled(w *world) {
	w.fill([]byte("b"), []byte("c"), []byte("d"))
	for _, k := range []string{"a/1", "a/2", "b/1", "b/2", "b/x/1", "d/1", "d/2", "e/1"} {
		w.put(k, "value of "+k)
	}
}

// tree is a bucket whose map has nodes: its cuts are too long for the root.
func tree(w *world) {
	var cuts [][]byte
	for i := range 12 {
		cuts = append(cuts, fmt.Appendf(nil, "k%02d%s", i, strings.Repeat("-", 400)))
	}
	w.fill(cuts...)
	root, err := mapclient.Of(w.c).Load(w.ctx, w.id)
	require.NoError(w.t, err)
	require.NotZero(w.t, root.Height)
	for _, k := range inTree {
		w.put(k, "value of "+k)
	}
}

var inTree = []string{"a", "k03/1", "k03/2", "k07", "k12/x"}

// phases is a bucket with a range in each phase of a move: the letters b to f.
func phases(w *world) {
	phased(w, func(string) bool { return true })
}

// emptied is the same without entries, but with the markers of some.
func emptied(w *world) {
	phased(w, func(string) bool { return false })
}

func phased(w *world, keep func(key string) bool) {
	letters := []string{"a", "b", "c", "d", "e", "f", "g"}
	var cuts [][]byte
	for _, l := range letters[1:] {
		cuts = append(cuts, []byte(l))
	}
	w.fill(cuts...)
	all := func(from int, f func(l string)) {
		for _, l := range letters[from:] {
			f(l)
		}
	}
	all(0, func(l string) {
		for i := 1; i < 6; i++ {
			w.put(fmt.Sprintf("%s/%d", l, i), fmt.Sprintf("first %s %d", l, i))
		}
	})
	b := w.c.Bucket("b")
	batch := map[string]uint64{}
	for i, l := range letters[1:6] {
		w.edit(func(e partmap.Edit) {
			var err error
			to := partmap.Part{Start: []byte(l), To: store.PartitionID(uuid.New())}
			batch[l], err = e.Begin(partmap.Move{
				Start: []byte(l), End: []byte(letters[i+2]), Parts: []partmap.Part{to},
			})
			require.NoError(w.t, err)
		})
	}
	advance := func(from int) {
		for _, l := range letters[from:6] {
			w.edit(func(e partmap.Edit) { require.NoError(w.t, e.Advance(batch[l])) })
		}
	}
	all(0, func(l string) { require.NoError(w.t, b.Delete(w.ctx, []byte(l+"/2"))) })
	advance(2) // c is copying
	all(0, func(l string) {
		w.put(l+"/6", "in the middle "+l)
		w.put(l+"/1", "newer "+l)
		require.NoError(w.t, b.Delete(w.ctx, []byte(l+"/3")))
	})
	if !keep("") {
		all(0, func(l string) {
			for i := 1; i < 7; i++ {
				require.NoError(w.t, b.Delete(w.ctx, fmt.Appendf(nil, "%s/%d", l, i)))
			}
		})
	}
	advance(3)
	for _, rg := range w.ranges() {
		if l := string(rg.Start); l >= "d" && l <= "f" {
			src, dst := store.Partition{Bucket: w.id, ID: rg.Partition}, store.Partition{Bucket: w.id, ID: rg.To}
			page, err := w.s.Slice(w.ctx, src, store.Bounds{}, store.SliceOptions{Limit: 100, Timestamps: true})
			require.NoError(w.t, err)
			for _, row := range page.Rows {
				if string(row.Key) != "d/4" { // to be written through by who reads it
					require.NoError(w.t, w.s.Put(w.ctx, dst, row))
				}
			}
			if l == "f" {
				require.NoError(w.t, w.s.Remove(w.ctx, src, store.Bounds{}, 1<<60))
			}
		}
	}
	advance(4) // d is verifying
	w.edit(func(e partmap.Edit) {
		require.NoError(w.t, e.Settle(batch["f"], store.Bounds{Start: []byte("f"), End: []byte("g")}))
	})
}

func (w *world) ranges() (all []partmap.Range) {
	m := mapclient.Of(w.c)
	root, err := m.Load(w.ctx, w.id)
	require.NoError(w.t, err)
	for rg, err := range m.Ranges(w.ctx, root, nil) {
		require.NoError(w.t, err)
		all = append(all, rg)
	}
	return all
}

// writes is a store that counts writes by their partition once it has a map for them, and whose gets
// may fail.
type writes struct {
	store.Store
	mu   sync.Mutex
	n    map[store.PartitionID]int
	gets error
}

func (s *writes) count(p store.Partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n != nil {
		s.n[p.ID]++
	}
}

func (s *writes) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	s.count(p)
	return s.Store.Put(ctx, p, rows...)
}

func (s *writes) Delete(ctx context.Context, p store.Partition, key []byte, ts store.Timestamp) error {
	s.count(p)
	return s.Store.Delete(ctx, p, key, ts)
}

func (s *writes) Get(ctx context.Context, p store.Partition, key []byte) (store.Row, bool, error) {
	if s.gets != nil {
		return store.Row{}, false, s.gets
	}
	return s.Store.Get(ctx, p, key)
}

// A read writes to the destination of a range that is verifying, and nowhere else; and nothing
// while it does not know what the source has of a copy.
func TestReadsThatWrite(t *testing.T) {
	for _, damaged := range []error{nil, store.Errorf(store.Corrupt, "damaged")} {
		s := &writes{Store: memstore.New()}
		w := &world{t: t, ctx: t.Context(), s: s, c: over(t, s, listing.Options{})}
		require.NoError(t, w.c.DeleteBucket(w.ctx, "b"))
		phases(w)
		want := map[store.PartitionID]int{}
		for _, rg := range w.ranges() {
			if rg.Phase != partmap.Verifying {
				continue
			}
			lost := store.Row{Key: []byte("d/9"), Value: cells.Copied(store.EntryCell(nil)), Timestamp: 5}
			require.NoError(t, s.Put(w.ctx, store.Partition{Bucket: w.id, ID: rg.To}, lost))
			if damaged == nil {
				want[rg.To] = 2 // d/4 is put, and the copy d/9 is deleted
			}
		}
		s.n, s.gets = map[store.PartitionID]int{}, damaged
		page, err := w.c.Bucket("b").List(w.ctx, listing.Query{})
		require.Equal(t, want, s.n)
		if damaged != nil {
			require.ErrorIs(t, err, damaged)
			continue
		}
		require.NoError(t, err)
		for _, item := range page.Items {
			require.NotEqual(t, "d/9", string(item.Key))
		}
	}
}

// What lies in the source of a range that is draining is not read: the mover is about to remove it.
func TestDrainingSourcesAreNotRead(t *testing.T) {
	s := memstore.New()
	w := &world{t: t, ctx: t.Context(), s: s, c: over(t, s, listing.Options{})}
	require.NoError(t, w.c.DeleteBucket(w.ctx, "b"))
	phases(w)
	b, draining := w.c.Bucket("b"), 0
	for _, rg := range w.ranges() {
		if rg.Phase == partmap.Draining {
			draining++
			require.NoError(t, s.Put(w.ctx, store.Partition{Bucket: w.id, ID: rg.Partition},
				store.Row{Key: []byte("e/9"), Value: store.EntryCell(nil), Timestamp: 1 << 60}))
		}
	}
	require.Equal(t, 1, draining)
	_, err := b.Get(w.ctx, []byte("e/9"))
	require.ErrorIs(t, err, listing.ErrNotFound)
	page, err := b.List(w.ctx, listing.Query{})
	require.NoError(t, err)
	for _, item := range page.Items {
		require.NotEqual(t, "e/9", string(item.Key))
	}
}

// snapshot is all that can be seen of a store.
func snapshot(t *testing.T, s store.Store, id store.BucketID) string {
	ctx := t.Context()
	c, err := listing.New(s, listing.Options{})
	require.NoError(t, err)
	var out strings.Builder
	for _, name := range []string{"b", "new"} {
		owner, err := door.Client(c).Owner(ctx, name)
		require.NoError(t, err)
		listed, err := door.Client(c).Listed(ctx, name)
		require.NoError(t, err)
		fmt.Fprintf(
			&out, "%s: taken %v, listed %v, in step %v", name, owner.ID != store.BucketID{}, listed.ID != store.BucketID{},
			owner.ID == listed.ID,
		)
		if (owner.ID != store.BucketID{}) {
			root, err := mapclient.Of(c).Load(ctx, owner.ID)
			require.NoError(t, err)
			fmt.Fprintf(&out, ", %s, %d ranges", root.State, root.Ranges)
		}
		out.WriteString("\n")
		for e, err := range c.Bucket(name).All(ctx, listing.Query{}) {
			if err != nil {
				fmt.Fprintf(&out, "  no listing: %d\n", store.KindOf(err))
				break
			}
			fmt.Fprintf(&out, "  %s = %s\n", e.Key, e.Value)
		}
	}
	if (id != store.BucketID{}) {
		root, err := mapclient.Of(c).Load(ctx, id)
		require.NoError(t, err)
		fmt.Fprintf(&out, "root: %s\n", root.State)
	}
	return out.String()
}

// operation is one call of a client.
type operation struct {
	name  string
	world func(w *world)
	do    func(ctx context.Context, c *listing.Client, w *world) (string, error)
	kind  kindOfOperation
	// whole: one read gets as many rows as it asks for; else three.
	whole bool
	// check, if set, is done right after success.
	check func(w *world)
	// again is what the operation may say when it is done again after it was done.
	again error
}

type kindOfOperation int

const (
	reads kindOfOperation = iota
	writesEntries
	writesInSteps  // after an error that is not definite some may have been done
	changesBuckets // the same
)

func show(items []listing.Item) string {
	var out strings.Builder
	for _, i := range items {
		fmt.Fprintf(&out, "%s=%s %v\n", i.Key, i.Value, i.CommonPrefix)
	}
	return out.String()
}

func operations() (all []operation) {
	read := func(name string, in func(*world), do func(ctx context.Context, b *listing.Bucket) (string, error)) {
		all = append(
			all,
			operation{name: name, world: in, do: func(ctx context.Context, c *listing.Client, _ *world) (string, error) {
				return do(ctx, c.Bucket("b"))
			}},
		)
	}
	write := func(name string, in func(*world), do func(ctx context.Context, b *listing.Bucket) error) {
		all = append(
			all,
			operation{
				name:  name,
				world: in,
				kind:  writesEntries,
				do: func(ctx context.Context, c *listing.Client, _ *world) (string, error) {
					return "", do(ctx, c.Bucket("b"))
				},
			},
		)
	}
	bucket := func(name string, in func(*world), again error, do func(ctx context.Context, c *listing.Client, w *world) error) {
		all = append(
			all,
			operation{
				name:  name,
				world: in,
				kind:  changesBuckets,
				again: again,
				do: func(ctx context.Context, c *listing.Client, w *world) (string, error) {
					return "", do(ctx, c, w)
				},
			},
		)
	}
	get := func(key string) func(ctx context.Context, b *listing.Bucket) (string, error) {
		return func(ctx context.Context, b *listing.Bucket) (string, error) {
			e, err := b.Get(ctx, []byte(key))
			return string(e.Value), err
		}
	}
	list := func(q listing.Query) func(ctx context.Context, b *listing.Bucket) (string, error) {
		return func(ctx context.Context, b *listing.Bucket) (string, error) {
			page, err := b.List(ctx, q)
			return show(page.Items) + string(page.Next[:min(1, len(page.Next))]), err
		}
	}
	every := func(q listing.Query) func(ctx context.Context, b *listing.Bucket) (string, error) {
		return func(ctx context.Context, b *listing.Bucket) (string, error) {
			var items []listing.Item
			for item, err := range b.All(ctx, q) {
				if err != nil {
					return "", err
				}
				items = append(items, item)
			}
			return show(items), nil
		}
	}
	split := func(ctx context.Context, b *listing.Bucket) (string, error) {
		points, err := b.SplitPoints(ctx, listing.Query{}, 4)
		return fmt.Sprintf("%q", points), err
	}
	for _, in := range []struct {
		name  string
		world func(*world)
		keys  []string
	}{
		{"settled", settled, []string{"a/2", "c/none"}},
		{"tree", tree, []string{"k03/2", "k09"}},
		{"phases", phases, []string{"a/4", "b/4", "b/2", "c/4", "c/1", "d/4", "d/1", "d/3", "e/4", "f/1", "g/1"}},
	} {
		for _, k := range in.keys {
			read("get "+k+" "+in.name, in.world, get(k))
			if k == "d/4" {
				all[len(all)-1].check = writtenThrough
			}
			write("put "+k+" "+in.name, in.world, func(ctx context.Context, b *listing.Bucket) error {
				return b.Put(ctx, []byte(k), []byte("new"))
			})
			write(
				"delete "+k+" "+in.name, in.world,
				func(ctx context.Context, b *listing.Bucket) error { return b.Delete(ctx, []byte(k)) },
			)
		}
		read("list "+in.name, in.world, list(listing.Query{}))
		if in.name == "phases" {
			all[len(all)-1].check = writtenThrough
		}
		read("list folded "+in.name, in.world, list(listing.Query{Delimiter: []byte("/"), Limit: 3}))
		read("list reverse "+in.name, in.world, list(listing.Query{Reverse: true, KeysOnly: true, Limit: 4}))
		read("all "+in.name, in.world, every(listing.Query{}))
		read("all folded "+in.name, in.world, every(listing.Query{Delimiter: []byte("/"), Reverse: true}))
		read("split points "+in.name, in.world, split)
		bucket(
			"delete bucket "+in.name, in.world, nil,
			func(ctx context.Context, c *listing.Client, _ *world) error { return c.DeleteBucket(ctx, "b") },
		)
	}
	for _, r := range []struct {
		name     string
		world    func(*world)
		from, to string
		kind     kindOfOperation
	}{
		{"a range of settled", settled, "b", "c", writesEntries},
		{"one entry of settled", settled, "b/1", "b/2", writesEntries},
		{"nothing of settled", settled, "c", "d", writesEntries},
		{"all of settled", settled, "", "", writesInSteps},
		{"parts of settled", settled, "a/2", "b/2", writesInSteps},
		{"parts of tree", tree, "k03/2", "k08", writesInSteps},
		{"one entry of phases", phases, "c/4", "c/5", writesEntries},
		{"all of phases", phases, "", "", writesInSteps},
	} {
		write("delete "+r.name, r.world, func(ctx context.Context, b *listing.Bucket) error {
			return b.DeleteRange(ctx, []byte(r.from), []byte(r.to))
		})
		all[len(all)-1].kind = r.kind
	}
	for name, rows := range map[string][]store.Row{
		"an entry":        {{Key: []byte("a/3"), Value: []byte("brought"), Timestamp: 7}},
		"two of a range":  {{Key: []byte("g/8"), Value: []byte("new")}, {Key: []byte("g/9"), Value: []byte("new")}},
		"a deletion":      {{Key: []byte("c/4")}},
		"rows of a range": {{Key: []byte("d/8"), Value: []byte("brought")}, {Key: []byte("d/9")}},
		"rows of many":    {{Key: []byte("a/4")}, {Key: []byte("b/4")}, {Key: []byte("e/4"), Value: []byte("new")}},
	} {
		write("bring "+name, phases, func(ctx context.Context, b *listing.Bucket) error {
			m, err := door.Bucket(b).Mark(ctx)
			if err != nil {
				return err
			}
			return door.Bucket(b).Bring(ctx, m, rows)
		})
		if strings.HasPrefix(name, "rows") {
			all[len(all)-1].kind = writesInSteps
		}
	}
	read("split points wide", wide, split)
	all[len(all)-1].whole = true
	both := func(first, then func(w *world)) func(w *world) {
		return func(w *world) { first(w); then(w) }
	}
	remove := func(ctx context.Context, c *listing.Client, _ *world) error { return c.DeleteBucket(ctx, "b") }
	create := func(ctx context.Context, c *listing.Client, _ *world) error {
		return c.CreateBucket(ctx, "b", []byte("x"))
	}
	mend := func(ctx context.Context, c *listing.Client, _ *world) error { return door.Client(c).Mend(ctx, "b") }
	restore := func(ctx context.Context, c *listing.Client, _ *world) error { return door.Client(c).Restore(ctx, "b") }
	discard := func(ctx context.Context, c *listing.Client, w *world) error {
		var named *listing.Error // by an id, which is another one each time
		if err := door.Client(c).Discard(ctx, w.id); errors.As(err, &named) {
			return named.Err
		}
		return nil
	}
	fresh := func(w *world) { w.fill() }
	emptiedTree := func(w *world) {
		tree(w)
		for _, k := range inTree {
			require.NoError(w.t, w.c.Bucket("b").Delete(w.ctx, []byte(k)))
		}
	}
	other := func(w *world) { require.NoError(w.t, w.c.CreateBucket(w.ctx, "other")) }
	closing := func(w *world) { w.state(w.id, partmap.Closing) }
	deleted := func(w *world) { w.state(w.id, partmap.Closing); w.state(w.id, partmap.Deleted) }
	unlisted := func(w *world) {
		for _, r := range w.listRows() {
			row, found, err := w.s.Get(w.ctx, r, []byte("b"))
			require.NoError(w.t, err)
			require.True(w.t, found)
			require.NoError(w.t, w.s.Delete(w.ctx, r, row.Key, row.Timestamp))
		}
	}
	nameless := func(w *world) { w.name("b", store.BucketID{}) }
	renamed := func(w *world) { // the list knows the bucket that had the name before
		root, err := mapclient.Of(w.c).Create(w.ctx, store.BucketID(uuid.New()), nil)
		require.NoError(w.t, err)
		w.name("b", root.Bucket)
	}

	bucket("create the first", func(*world) {}, listing.ErrBucketExists, create)
	bucket("create", other, listing.ErrBucketExists, create)
	bucket("create again", settled, nil, create)
	bucket("create while it is deleted", both(fresh, closing), nil, create)
	bucket("create once it is deleted", both(fresh, deleted), listing.ErrBucketExists, create)
	bucket("create what is not on the list", both(settled, unlisted), nil, create)
	bucket(
		"create anew",
		func(w *world) { w.fill(); require.NoError(w.t, w.c.DeleteBucket(w.ctx, "b")); w.id = store.BucketID{} },
		listing.ErrBucketExists, create,
	)
	bucket("delete none", other, nil, remove)
	bucket("delete empty", fresh, listing.ErrNoSuchBucket, remove)
	bucket("delete emptied", emptied, listing.ErrNoSuchBucket, remove)
	bucket("delete emptied tree", emptiedTree, listing.ErrNoSuchBucket, remove)
	bucket("delete closing", both(fresh, closing), listing.ErrNoSuchBucket, remove)
	bucket("delete closing tree", both(emptiedTree, closing), listing.ErrNoSuchBucket, remove)
	bucket("delete closing with entries", both(settled, closing), nil, remove)
	bucket("delete phases closing", both(phases, closing), nil, remove)
	bucket("delete deleted", both(fresh, deleted), nil, remove)
	bucket("delete what is not on the list", both(fresh, unlisted), listing.ErrNoSuchBucket, remove)
	bucket("mend unlisted", both(settled, unlisted), nil, mend)
	bucket("mend renamed", both(settled, renamed), nil, mend)
	bucket("mend nameless", both(settled, nameless), nil, mend)
	bucket("mend deleted", both(fresh, deleted), nil, mend)
	bucket("mend what is well", settled, nil, mend)
	bucket("mend nothing", func(*world) {}, nil, mend)
	bucket("restore nameless", both(settled, nameless), nil, restore)
	bucket("restore renamed", both(settled, renamed), nil, restore)
	bucket("restore what is well", settled, nil, restore)
	bucket("restore unlisted", both(both(settled, unlisted), nameless), nil, restore)
	bucket("restore deleted", both(both(fresh, deleted), nameless), nil, restore)
	bucket("discard", both(fresh, nameless), nil, discard)
	bucket("discard with entries", both(settled, nameless), nil, discard)
	bucket("discard deleted", both(both(fresh, deleted), nameless), nil, discard)
	for _, name := range []string{"b", "new"} {
		all = append(
			all,
			operation{
				name:  "look up " + name,
				world: settled,
				do: func(ctx context.Context, c *listing.Client, w *world) (string, error) {
					id, err := c.BucketID(ctx, name)
					return fmt.Sprint(id == w.id), err
				},
			},
			operation{
				name:  "owner " + name,
				world: settled,
				do: func(ctx context.Context, c *listing.Client, w *world) (string, error) {
					info, err := door.Client(c).Owner(ctx, name)
					return fmt.Sprint(info.ID == w.id, info.Created.IsZero()), err
				},
			},
			operation{
				name:  "listed " + name,
				world: settled,
				do: func(ctx context.Context, c *listing.Client, w *world) (string, error) {
					info, err := door.Client(c).Listed(ctx, name)
					return fmt.Sprint(info.ID == w.id), err
				},
			},
		)
	}
	all = append(
		all,
		operation{
			name:  "buckets",
			world: both(settled, other),
			do: func(ctx context.Context, c *listing.Client, w *world) (out string, err error) {
				for info, err := range c.Buckets(ctx, "", "") {
					if err != nil {
						return "", err
					}
					out += fmt.Sprintln(info.Name, info.ID == w.id)
				}
				return out, nil
			},
		},
		operation{
			name:  "buckets of none",
			world: func(*world) {},
			do: func(ctx context.Context, c *listing.Client, w *world) (out string, err error) {
				for info, err := range c.Buckets(ctx, "", "") {
					return info.Name, err
				}
				return "none", nil
			},
		},
	)
	return all
}

// wide is a bucket of one range with more keys than are read in one go, in heaps.
func wide(w *world) {
	w.fill()
	var entries []listing.Entry
	for i := range 700 {
		entries = append(entries, listing.Entry{Key: fmt.Appendf(nil, "%c%c/%03d", 'a'+i%7*3, 'a'+i%5*i%5, i)})
	}
	require.NoError(w.t, w.c.Bucket("b").PutBatch(w.ctx, entries))
}

// writtenThrough: what was shown in the verifying phase is in the destination.
func writtenThrough(w *world) {
	for _, rg := range w.ranges() {
		if string(rg.Start) == "d" {
			_, found, err := w.s.Get(w.ctx, store.Partition{Bucket: w.id, ID: rg.To}, []byte("d/4"))
			require.NoError(w.t, err)
			require.True(w.t, found, "what was shown may vanish")
		}
	}
}

// rightAnswers are what comes of operations without a failure: of those that change
// buckets the error, what the directory and the list say of the name then, and the state
// of the bucket that the world is about; of others the answer.
var rightAnswers = map[string][3]string{
	"delete bucket settled": {notEmptyB, "b: taken true, listed true, in step true, open, 4 ranges", "open"},
	"delete bucket tree":    {notEmptyB, "b: taken true, listed true, in step true, open, 13 ranges", "open"},
	"delete bucket phases":  {notEmptyB, "b: taken true, listed true, in step true, open, 7 ranges", "open"},
	"create the first":      {"<nil>", "b: taken true, listed true, in step true, open, 2 ranges", ""},
	"create":                {"<nil>", "b: taken true, listed true, in step true, open, 2 ranges", ""},
	"create again":          {existsB, "b: taken true, listed true, in step true, open, 4 ranges", "open"},
	"create while it is deleted": {
		`create bucket "b": ` + listing.ErrBucketClosing.Error(),
		"b: taken true, listed true, in step true, closing, 1 ranges", "closing",
	},
	"create once it is deleted":      {"<nil>", "b: taken true, listed true, in step true, open, 2 ranges", "deleted"},
	"create what is not on the list": {existsB, "b: taken true, listed true, in step true, open, 4 ranges", "open"},
	"create anew":                    {"<nil>", "b: taken true, listed true, in step true, open, 2 ranges", ""},
	"delete none":                    {noneB, "b: taken false, listed false, in step true", ""},
	"delete empty":                   {"<nil>", "b: taken false, listed false, in step true", "deleted"},
	"delete emptied":                 {"<nil>", "b: taken false, listed false, in step true", "deleted"},
	"delete emptied tree":            {"<nil>", "b: taken false, listed false, in step true", "deleted"},
	"delete closing":                 {"<nil>", "b: taken false, listed false, in step true", "deleted"},
	"delete closing tree":            {"<nil>", "b: taken false, listed false, in step true", "deleted"},
	"delete closing with entries":    {notEmptyB, "b: taken true, listed true, in step true, open, 4 ranges", "open"},
	"delete phases closing":          {notEmptyB, "b: taken true, listed true, in step true, open, 7 ranges", "open"},
	"delete deleted":                 {noneB, "b: taken false, listed false, in step true", "deleted"},
	"delete what is not on the list": {"<nil>", "b: taken false, listed false, in step true", "deleted"},
	"mend unlisted":                  {"<nil>", "b: taken true, listed true, in step true, open, 4 ranges", "open"},
	"mend renamed":                   {"<nil>", "b: taken true, listed true, in step true, open, 1 ranges", "open"},
	"mend nameless":                  {"<nil>", "b: taken false, listed false, in step true", "open"},
	"mend deleted":                   {"<nil>", "b: taken false, listed false, in step true", "deleted"},
	"mend what is well":              {"<nil>", "b: taken true, listed true, in step true, open, 4 ranges", "open"},
	"mend nothing":                   {"<nil>", "b: taken false, listed false, in step true", ""},
	"restore nameless":               {"<nil>", "b: taken true, listed true, in step true, open, 4 ranges", "open"},
	"restore renamed": {
		`give back the name "b": ` + listing.ErrBucketExists.Error(),
		"b: taken true, listed true, in step false, open, 1 ranges", "open",
	},
	"restore what is well": {"<nil>", "b: taken true, listed true, in step true, open, 4 ranges", "open"},
	"restore unlisted": {
		`give back the name "b": ` + listing.ErrNoSuchBucket.Error(), "b: taken false, listed false, in step true", "open",
	},
	"restore deleted": {
		`give back the name "b": ` + listing.ErrNoSuchBucket.Error(), "b: taken false, listed true, in step false", "deleted",
	},
	"discard":              {"<nil>", "b: taken false, listed true, in step false", "deleted"},
	"discard with entries": {listing.ErrNotEmpty.Error(), "b: taken false, listed true, in step false", "open"},
	"discard deleted":      {"<nil>", "b: taken false, listed true, in step false", "deleted"},

	"get a/2 settled":    {"value of a/2"},
	"get c/none settled": {""},
	"get k03/2 tree":     {"value of k03/2"},
	"get b/4 phases":     {"first b 4"},
	"get b/2 phases":     {""},
	"get c/1 phases":     {"newer c"},
	"get d/4 phases":     {"first d 4"},
	"get d/3 phases":     {""},
	"get e/4 phases":     {"first e 4"},
	"get f/1 phases":     {"newer f"},
	"look up b":          {"true"},
	"look up new":        {"false"},
	"owner b":            {"true false"},
	"owner new":          {"false true"},
	"listed b":           {"true"},
	"listed new":         {"false"},
	"buckets":            {"b true\nother false\n"},
	"buckets of none":    {"none"},
}

var (
	notEmptyB = `delete bucket "b": ` + listing.ErrNotEmpty.Error()
	existsB   = `create bucket "b": ` + listing.ErrBucketExists.Error()
	noneB     = `delete bucket "b": ` + listing.ErrNoSuchBucket.Error()
)

// listRows are the partitions of the list of buckets.
func (w *world) listRows() (all []store.Partition) {
	root, err := mapclient.Of(w.c).Load(w.ctx, door.ListOfBuckets)
	require.NoError(w.t, err)
	for rg, err := range mapclient.Of(w.c).Ranges(w.ctx, root, nil) {
		require.NoError(w.t, err)
		all = append(all, store.Partition{Bucket: root.Bucket, ID: rg.Partition})
	}
	return all
}

// outcome is what came of an operation.
type outcome struct {
	answer        string
	err           error
	before, after string // snapshots
	hooks         int
}

// same: the errors that are right answers are compared by what they say.
func (o *outcome) same(p *outcome) bool {
	return o.answer == p.answer && fmt.Sprint(o.err) == fmt.Sprint(p.err)
}

// attempt does an operation over a store in which a case fails, and then again. With
// giveUp the caller gives up before or after so many calls of rows and registers.
func (o *operation) attempt(
	t *testing.T, fail faulttest.Case, giveUp int,
) (got, again outcome, calls map[faultstore.Op]int) {
	inner := memstore.New()
	s, faults := fail.Store(inner)
	defer func() { require.NoError(t, s.Close()) }()
	build := func(s store.Store) *world {
		c, err := listing.New(s, listing.Options{})
		require.NoError(t, err)
		w := &world{t: t, ctx: t.Context(), s: s, c: c}
		o.world(w)
		return w
	}
	w := build(inner)
	if o.check == nil {
		got.before = snapshot(t, inner, w.id)
	} else { // a look at it would write through
		twin := memstore.New()
		defer twin.Close()
		got.before = snapshot(t, twin, build(twin).id)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	morsels := &listtest.Morsels{Store: s, Rows: 3}
	if o.whole {
		morsels.Rows = store.MaxPageRows
	}
	hooked := &listtest.Hooked{Store: morsels, Registers: true}
	c, err := listing.New(hooked, listing.Options{RowsPerRead: 1, ReadAhead: 4, ReadAheadAfter: 1})
	require.NoError(t, err)
	faults.Enable(true)
	var hooks atomic.Int64
	hooked.Hook = func() {
		if hooks.Add(1) == int64(giveUp) {
			cancel()
		}
	}
	got.answer, got.err = o.do(ctx, c, w)
	synctest.Wait() // for what goes on after the caller gave up
	got.hooks = int(hooks.Load())
	hooked.Hook = nil
	calls = faulttest.Calls(faults)
	faults.Enable(false)
	if got.err == nil && o.check != nil {
		o.check(w)
	}
	require.NoError(t, faults.Flush(t.Context()))
	got.after = snapshot(t, inner, w.id)
	again.before = got.after
	again.answer, again.err = o.do(t.Context(), c, w)
	again.after = snapshot(t, inner, w.id)
	noLeaseIsLeft(t, c, w.id)
	return got, again, calls
}

// noLeaseIsLeft waits for all that hold the map of a bucket, or that of the list of buckets: in a
// bubble that ends at once, or never.
func noLeaseIsLeft(t *testing.T, c *listing.Client, id store.BucketID) {
	for _, id := range []store.BucketID{id, door.ListOfBuckets} {
		root, err := mapclient.Of(c).Load(t.Context(), id)
		if errors.Is(err, store.NotFound) {
			continue
		}
		require.NoError(t, err)
		require.NoError(t, mapclient.Of(c).Swap(t.Context(), partmap.Again(root, mapclient.Of(c).Stamp())))
		require.NoError(t, mapclient.Of(c).Wait(t.Context(), id))
	}
}

// judge compares what came of an operation with what comes of it without a failure.
func (o *operation) judge(t *testing.T, want, got, again *outcome, failed error) {
	unknown := errors.Is(got.err, listing.ErrOutcomeUnknown)
	if errors.Is(got.err, store.ErrUnwritable) {
		require.False(t, unknown)
		require.Equal(t, want.before, got.after, "it said that nothing was done: %v", got.err)
	}
	switch {
	case got.same(want):
		require.Equal(t, want.after, got.after, "it said that it was done")
	case o.kind == writesEntries && unknown:
		require.Contains(t, []string{want.before, want.after}, got.after)
	case o.kind >= writesInSteps && (unknown || failed == nil || errors.Is(got.err, failed)):
		require.Error(t, got.err)
	default:
		require.ErrorIs(t, got.err, failed)
		require.Equal(t, want.before, got.after, "it said that nothing was done: %v", got.err)
	}
	if o.again == nil || !errors.Is(again.err, o.again) {
		require.True(t, again.same(want), "again: %v %v", again.answer, again.err)
	}
	require.Equal(t, want.after, again.after, "after it was done again")
}

func TestEachCallFails(t *testing.T) {
	for _, o := range operations() {
		t.Run(o.name, func(t *testing.T) {
			var want outcome
			var calls map[faultstore.Op]int
			synctest.Test(t, func(t *testing.T) {
				var again outcome
				want, again, calls = o.attempt(t, faulttest.Case{}, 0)
				o.judge(t, &want, &want, &again, nil)
				if right, ok := rightAnswers[o.name]; ok || o.kind == changesBuckets {
					line, _, _ := strings.Cut(want.after, "\n")
					_, root, _ := strings.Cut(want.after, "root: ")
					if o.kind == changesBuckets {
						require.Equal(t, right, [3]string{fmt.Sprint(want.err), line, strings.TrimSpace(root)})
					} else if ok {
						require.Equal(t, right[0], want.answer)
					}
				}
				t.Logf("%q, %v", want.answer, want.err)
			})
			faulttest.Each(t, calls, func(fail faulttest.Case) {
				if k := fail.Way.Kind; o.kind == reads &&
					(fail.Way.Times > 1 || k == store.Timeout || k == store.TooMuchDeadData) {
					return // reads are not tried again, whatever failed
				}
				synctest.Test(t, func(t *testing.T) {
					got, again, _ := o.attempt(t, fail, 0)
					o.judge(t, &want, &got, &again, faultstore.ErrInjected)
					if o.kind == writesEntries && fail.Way.Passing() &&
						(fail.Op == faultstore.Put || fail.Op == faultstore.Delete || fail.Op == faultstore.Remove) {
						require.NoError(t, got.err, "it is tried again")
					}
				})
			})
		})
	}
}

// The same for callers who give up, before or after each call.
func TestTheCallerGivesUpAtEachCall(t *testing.T) {
	for _, o := range operations() {
		t.Run(o.name, func(t *testing.T) {
			var want outcome
			synctest.Test(t, func(t *testing.T) { want, _, _ = o.attempt(t, faulttest.Case{}, 0) })
			var sample faulttest.Sample
			for at := 1; at <= want.hooks && !t.Failed(); at++ {
				if sample.Skips() {
					continue
				}
				synctest.Test(t, func(t *testing.T) {
					got, again, _ := o.attempt(t, faulttest.Case{}, at)
					o.judge(t, &want, &got, &again, context.Canceled)
				})
			}
		})
	}
}

// A batch tells of each entry what became of it.
func TestEachCallFailsUnderABatch(t *testing.T) {
	entries := []listing.Entry{
		{Key: []byte("d/1"), Value: []byte("one")},
		{Key: []byte("a/1"), Value: []byte("new")},
		{Key: nil},
		{Key: []byte("b/2"), Value: []byte("new")},
		{Key: []byte("g/9"), Value: []byte("new")},
		{Key: []byte("d/1"), Value: []byte("two")},
		{Key: []byte("e/7"), Value: []byte("new")},
		{Key: []byte("c/3"), Value: make([]byte, 64<<10+1)}, {Key: []byte("f/1"), Value: []byte("new")},
	}
	run := func(t *testing.T, fail faulttest.Case) map[faultstore.Op]int {
		ctx := t.Context()
		inner := memstore.New()
		s, faults := fail.Store(inner)
		defer func() { require.NoError(t, s.Close()) }()
		build, err := listing.New(inner, listing.Options{})
		require.NoError(t, err)
		w := &world{t: t, ctx: ctx, s: inner, c: build}
		phases(w)
		value := func(key []byte) string {
			e, err := build.Bucket("b").Get(ctx, key)
			if !errors.Is(err, listing.ErrNotFound) {
				require.NoError(t, err)
			}
			return string(e.Value)
		}
		before := map[string]string{}
		for _, e := range entries {
			if len(e.Key) > 0 {
				before[string(e.Key)] = value(e.Key)
			}
		}
		c, err := listing.New(s, listing.Options{})
		require.NoError(t, err)
		faults.Enable(true)
		err = c.Bucket("b").PutBatch(ctx, entries)
		calls := faulttest.Calls(faults)
		faults.Enable(false)
		require.NoError(t, faults.Flush(ctx))
		var batch *listing.BatchError
		require.ErrorAs(t, err, &batch)
		require.Len(t, batch.Outcomes, len(entries))
		failed := 0
		for i, e := range entries {
			outcome := batch.Outcomes[i]
			if outcome != nil {
				failed++
				require.ErrorIs(t, err, outcome)
			}
			switch {
			case i == 2 || i == 7:
				require.ErrorIs(t, outcome, store.InvalidArgument)
			case i == 0: // of one key the last wins
				require.Equal(t, batch.Outcomes[5], outcome)
			case outcome == nil:
				require.Equal(t, string(e.Value), value(e.Key))
			case errors.Is(outcome, listing.ErrOutcomeUnknown):
				require.Contains(t, []string{before[string(e.Key)], string(e.Value)}, value(e.Key))
			default:
				require.ErrorIs(t, outcome, faultstore.ErrInjected)
				require.Equal(t, before[string(e.Key)], value(e.Key))
			}
		}
		require.ErrorContains(t, err, fmt.Sprintf("%d of 9 entries failed, the first is number ", failed))
		if fail.Way == nil || fail.Way.Passing() && fail.Op == faultstore.Put {
			require.Equal(t, 2, failed)
		}
		require.ErrorAs(t, c.Bucket("b").PutBatch(ctx, entries), &batch)
		for i, e := range entries {
			if i != 2 && i != 7 && i != 0 {
				require.NoError(t, batch.Outcomes[i])
				require.Equal(t, string(e.Value), value(e.Key))
			}
		}
		return calls
	}
	var calls map[faultstore.Op]int
	synctest.Test(t, func(t *testing.T) { calls = run(t, faulttest.Case{}) })
	faulttest.Each(t, calls, func(fail faulttest.Case) {
		synctest.Test(t, func(t *testing.T) { run(t, fail) })
	})
}
