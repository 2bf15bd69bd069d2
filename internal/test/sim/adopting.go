package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/internal/adopt"
	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// RunAdoption simulates how the rows of another store (the source) are copied into a bucket in two data centres.
// Meanwhile applications write to the source and then to the bucket, ranges move, and the link is cut. The run checks
// that what an application has written to both stays, and that the bucket equals the source after the last catch-up.
// RunAdoption must be called within a testing/synctest bubble.
func RunAdoption(c Config) Report {
	g := newStage(c)
	g.s.longest = 20 * time.Second // of the five minutes for which a mark is good
	src := &source{g: g, rows: map[string]adopt.Row{}}
	for i := range 4 * c.Keys {
		if i%3 > 0 {
			key := adoptedKey(i)
			src.rows[key] = adopt.Row{Key: []byte(key), Value: []byte("old " + key), Time: store.Timestamp(1 + i)}
		}
	}
	old := maps.Clone(src.rows)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := g.create(ctx, func(c *listing.Client) error { return c.CreateBucket(ctx, "b") }); err != nil {
		return Report{Err: err}
	}
	client, err := g.client(several{g.gated}, 3)
	if err != nil {
		return Report{Err: err}
	}
	adopter := &actor{name: "adopter", centre: int(c.Seed / 2 % 2)}
	adoption := func(wide bool) *adopt.Adoption {
		from := client
		if wide && !c.Mistakes.NearCatchUp {
			from = client.Everywhere()
		}
		return adopt.New(adopt.Options{Source: src, Bucket: from.Bucket("b"), Pace: wait.NewPacer(0), Parallel: 1,
			Spans: []adopt.Span{{}}, Report: func(f adopt.Finding) { g.s.fail("adopter: %q: %s", f.Key, f.Fault) }})
	}
	// insist repeats what a cut or a fault breaks off.
	insist := func(ctx context.Context, what string, f func() error) {
		for ctx.Err() == nil && !g.s.failed() {
			err := f()
			if err == nil {
				return
			}
			if !excused(err) && !errors.Is(err, door.ErrMoved) {
				g.s.fail("adopter: %s: %v", what, err)
			}
			time.Sleep(time.Minute)
		}
	}
	copies := func(ctx context.Context) {
		insist(ctx, "copy", func() error {
			return adoption(false).Copy(ctx, adopt.NewDone("", src.Parts(), nil, 0))
		})
	}
	var apps []*application
	for i := range c.Clients {
		x := &application{stage: g, src: src, r: rand.New(rand.NewPCG(c.Seed, uint64(100+i))), last: map[string]*known{}}
		x.a = &actor{name: fmt.Sprintf("client%d", i), client: true, centre: i % 2}
		cl, err := g.client(several{g.gated}, 1+i%3)
		if err != nil {
			return Report{Err: err}
		}
		x.b = cl.Bucket("b")
		for k := i; k < 4*c.Keys; k += c.Clients {
			key := adoptedKey(k)
			x.keys = append(x.keys, key)
			x.last[key] = &known{may: []string{"", string(old[key].Value)}}
		}
		if len(x.keys) > 0 {
			apps = append(apps, x)
			g.begin(ctx, x.a, x.run)
		}
	}
	r := rand.New(rand.NewPCG(c.Seed, 50))
	g.begin(ctx, adopter, func(ctx context.Context) {
		for range 2 + r.IntN(4) {
			forget := src.remember()
			time.Sleep(time.Duration(r.Int64N(int64(time.Hour))))
			copies(ctx)
			forget()
			if r.IntN(3) == 0 {
				insist(ctx, "catch up", func() error { return adoption(true).Compare(ctx, true) })
			}
		}
	})
	g.begin(ctx, &actor{name: "mover", centre: int(c.Seed % 2)}, func(ctx context.Context) {
		g.moves(ctx, func(r *rand.Rand) []byte { return []byte(adoptedKey(r.IntN(4 * c.Keys))) })
	})
	g.run(func() bool { return true })
	if !g.s.failed() {
		g.reach()
		g.begin(ctx, adopter, func(ctx context.Context) {
			copies(ctx)
			insist(ctx, "catch up", func() error { return adoption(true).Compare(ctx, true) })
			insist(ctx, "verify", func() error { return adoption(true).Compare(ctx, false) })
		})
		g.run(func() bool { return true })
	}
	cancel()
	g.s.stop()
	g.actors.Wait()
	if !g.s.failed() {
		g.centres.heal()
		g.adopted(src)
	}
	rep := g.report()
	for _, x := range apps {
		rep.Acked, rep.Unknown, rep.Shown = rep.Acked+x.acked, rep.Unknown+x.unknown, rep.Shown+x.shown
	}
	return rep
}

func adoptedKey(i int) string { return fmt.Sprintf("k%02d", i) }

// adopted checks that the bucket has the same rows as the source in both data centres.
func (g *stage) adopted(src *source) {
	for i, local := range g.centres.local {
		c, err := listing.New(mapclient.With(mixed{g.mem, local}, mapclientOf(g)), listing.Options{})
		if err != nil {
			g.s.fail("last listing: %v", err)
			return
		}
		left := maps.Clone(src.rows)
		for e, err := range c.Bucket("b").All(context.Background(), listing.Query{}) {
			if row, there := left[string(e.Key)]; err != nil || !there || !bytes.Equal(row.Value, e.Value) {
				g.s.fail("last listing: data centre %d has %q with %q, the source has %q: %v", i, e.Key, e.Value, row.Value, err)
				return
			}
			delete(left, string(e.Key))
		}
		for key := range left {
			g.s.fail("last listing: data centre %d lacks %q", i, key)
			return
		}
	}
}

// source is the table from which rows are copied into a bucket. It is in memory, and all processes see each write at
// once. With the mistake ReadBeforeMark the source shows rows as they were long before the copy.
type source struct {
	g *stage

	mu     sync.Mutex
	rows   map[string]adopt.Row
	before map[string]adopt.Row
}

// remember makes the mistake ReadBeforeMark until forget is called: the source shows the rows that it has now.
func (s *source) remember() (forget func()) {
	if !s.g.c.Mistakes.ReadBeforeMark {
		return func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = maps.Clone(s.rows)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.before = nil
	}
}

// Parts returns 1, the number of parts of the source that can be read at the same time.
func (s *source) Parts() int { return 1 }

// Page returns up to limit rows of the source with keys within `of`, in order.
func (s *source) Page(ctx context.Context, _ int, of adopt.Span, limit int, _ bool) (page []adopt.Row, err error) {
	if !s.g.s.gate(ctx, "read the source") {
		return nil, store.Errorf(store.Unavailable, "read the source: %w", errStopped)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rows := s.rows
	if s.before != nil {
		rows = s.before
	}
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		in := key > string(of.From) || key == string(of.From) && !of.After
		if in && (of.To == nil || key < string(of.To)) && len(page) < limit {
			page = append(page, rows[key])
		}
	}
	return page, nil
}

// Get returns the row of the source with the given key, and whether the source has the row.
func (s *source) Get(ctx context.Context, _ int, key []byte) (adopt.Row, bool, error) {
	if !s.g.s.gate(ctx, "read the source") {
		return adopt.Row{}, false, store.Errorf(store.Unavailable, "read the source: %w", errStopped)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	row, found := s.rows[string(key)]
	return row, found, nil
}

// Same reports whether two values of rows are equal.
func (s *source) Same(a, b []byte) bool { return bytes.Equal(a, b) }

// write writes a row to the source. An empty value deletes the row.
func (s *source) write(ctx context.Context, key, value string) error {
	if !s.g.s.gate(ctx, "write to the source") {
		return store.Errorf(store.Unavailable, "write to the source: %w", errStopped)
	}
	ts, err := s.g.stamps.Next(ctx, 1)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if value == "" {
		delete(s.rows, key)
	} else {
		s.rows[key] = adopt.Row{Key: []byte(key), Value: []byte(value), Time: ts}
	}
	return nil
}

// known is what the bucket may show for a key: the value that was acknowledged last, or any value that was written
// since. An empty value stands for no row.
type known struct{ may []string }

// application is a client that writes to the source and then to the bucket. No other client writes the application's
// keys.
type application struct {
	*stage
	src  *source
	b    *listing.Bucket
	a    *actor
	r    *rand.Rand
	keys []string
	last map[string]*known

	n, acked, unknown, shown int
}

func (x *application) run(ctx context.Context) {
	for range x.c.Ops {
		if ctx.Err() != nil || x.s.failed() {
			return
		}
		time.Sleep(time.Duration(x.r.Int64N(int64(10 * time.Minute))))
		key := x.keys[x.r.IntN(len(x.keys))]
		last := x.last[key]
		if x.r.IntN(100) >= x.c.Writes {
			e, err := x.b.Get(ctx, []byte(key))
			switch {
			case err != nil && !errors.Is(err, listing.ErrNotFound):
				x.tolerate("get", err)
			case !slices.Contains(last.may, string(e.Value)):
				x.s.fail("%s: key %q shows %q, not one of %q", x.a.name, key, e.Value, last.may)
			default:
				x.shown++
			}
			continue
		}
		x.n++
		value := fmt.Sprintf("%s.%d", x.a.name, x.n)
		if x.r.IntN(2) == 0 {
			value = ""
		}
		if err := x.src.write(ctx, key, value); err != nil {
			return
		}
		last.may = append(last.may, value)
		if x.r.IntN(8) == 0 {
			x.unknown++
			continue // it broke off between the two: a catch-up must mend that
		}
		var err error
		if value == "" {
			err = x.b.Delete(ctx, []byte(key))
		} else {
			err = x.b.Put(ctx, []byte(key), []byte(value))
		}
		if err != nil {
			x.unknown++
			x.tolerate("change", err)
			continue
		}
		x.acked++
		last.may = []string{value}
	}
}

func (x *application) tolerate(what string, err error) {
	if !excused(err) {
		x.s.fail("%s: %s: %v", x.a.name, what, err)
	}
}
