package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/store"
)

const (
	objectsPut     = 10 * time.Minute
	objectsGrace   = time.Hour
	objectsSettled = 12 * time.Hour // longer than any write takes to the other data centre
)

// RunObjects simulates a bucket of objects in two data centres, with a cleaner in each, audits, uploads in parts, moves
// of ranges and cuts of the link. The run checks that an acknowledged version keeps its body until the version is
// deleted or replaced, that deleted versions stay deleted, and that at the end only bodies of versions are left.
// RunObjects must be called within a testing/synctest bubble.
func RunObjects(c Config) Report {
	c.Centres.Late = 6 * time.Hour
	g := newStage(c)
	g.s.longest = 20 * time.Second // of the minute that a client has to write what follows from a row
	l := &ledger{byKey: map[string][]*try{}, byBody: map[string]*try{}}
	blobs := &stageBlobs{g: g, m: map[string][]byte{}, r: rand.New(rand.NewPCG(c.Seed, 30))}
	options := objects.Options{InlineBytes: 20, PutTimeout: objectsPut}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	versioned := objects.Never
	if c.Seed%2 == 0 {
		versioned = objects.Enabled
	}
	if err := g.create(ctx, func(c *listing.Client) error {
		o, err := objects.New(c, blobs, options)
		if err == nil {
			err = o.CreateBucket(ctx, "b")
		}
		if err == nil && versioned == objects.Enabled {
			err = o.SetStatus(ctx, "b", objects.Enabled)
		}
		if err == nil {
			err = o.SetLifecycle(ctx, "b", objects.Lifecycle{{ID: "uploads", AbandonDays: 1}})
		}
		return err
	}); err != nil {
		return Report{Err: err}
	}
	open := func(attempts int) (*objects.Objects, error) {
		client, err := g.client(several{g.gated}, attempts)
		if err != nil {
			return nil, err
		}
		return objects.New(client, blobs, options)
	}
	for i := range 2 {
		o, err := open(3)
		if err != nil {
			return Report{Err: err}
		}
		k := &keeper{stage: g, l: l, o: o, a: &actor{name: fmt.Sprintf("cleaner%d", i), centre: i},
			r: rand.New(rand.NewPCG(c.Seed, uint64(40+i)))}
		g.actors.Go(func() { k.run(withActor(ctx, k.a)) })
	}
	for i := range c.Clients {
		o, err := open(1 + i%3)
		if err != nil {
			return Report{Err: err}
		}
		x := &putter{stage: g, l: l, b: o.Bucket("b", versioned), r: rand.New(rand.NewPCG(c.Seed, uint64(100+i)))}
		x.versioned = versioned == objects.Enabled
		x.a = &actor{name: fmt.Sprintf("client%d", i), client: true, centre: i % 2}
		g.begin(ctx, x.a, x.run)
	}
	g.begin(ctx, &actor{name: "mover", centre: int(c.Seed / 2 % 2)}, func(ctx context.Context) {
		g.moves(ctx, func(r *rand.Rand) []byte {
			cut := fmt.Appendf(nil, "o%d\x00\x01", r.IntN(c.Keys))
			for range r.IntN(4) { // within the versions of an object
				cut = append(cut, byte(r.Uint32()))
			}
			return cut
		})
	})
	g.run(func() bool { return true })
	if !g.s.failed() {
		g.quiet()
		blobs.calm()
		g.s.longest = time.Second // a page of uploads is done with in time
		end := time.Now().Add(12 * (objectsGrace + objectsSettled))
		g.s.run(func() bool { return time.Now().After(end) }, g.s.steps+200_000)
	}
	cancel()
	g.s.stop()
	g.actors.Wait()
	if !g.s.failed() {
		g.centres.heal()
		blobs.free = true
		for i := range g.centres.local {
			if err := g.leftOf(l, blobs, options, versioned, i); err != nil {
				g.s.fail("in the end data centre %d: %v", i, err)
			}
		}
	}
	r := g.report()
	r.Acked, r.Unknown, r.Shown, r.Absent, r.Dropped = l.acked, l.unsure, l.shown, l.absent, int(l.finished)
	r.Uploads = l.ended
	return r
}

// leftOf checks the versions and bodies that a data centre has at the end of a run.
func (g *stage) leftOf(
	l *ledger, blobs *stageBlobs, options objects.Options, versioned objects.Status, centre int,
) error {
	ctx := context.Background()
	rows := mixed{g.mem, g.centres.local[centre]}
	c, err := listing.New(mapclient.With(rows, mapclientOf(g)), listing.Options{Timestamps: &stageStamps{g}})
	if err != nil {
		return err
	}
	o, err := objects.New(c, blobs, options)
	if err != nil {
		return err
	}
	b, versions := o.Bucket("b", versioned), map[*try]bool{}
	for q := (objects.Query{}); ; {
		page, err := b.ListVersions(ctx, q)
		if err != nil {
			return err
		}
		for _, item := range page.Items {
			if item.Marker {
				continue
			}
			body, err := bodyOf(ctx, b, string(item.Key), item.ID)
			x := l.byBody[body]
			switch {
			case err != nil:
				return fmt.Errorf("version %s of %q: %w", item.ID, item.Key, err)
			case x == nil:
				return fmt.Errorf("version %s of %q has the body %q, which nobody put", item.ID, item.Key, body)
			case x.gone[0]+x.gone[1] > 0:
				return fmt.Errorf("version %s of %q was deleted", item.ID, item.Key)
			case versioned == objects.Never && !item.Latest:
				return fmt.Errorf("version %s of %q is superseded", item.ID, item.Key)
			}
			versions[x] = true
		}
		if q.Token = page.Next; q.Token == "" {
			break
		}
	}
	for key, all := range l.byKey {
		for _, x := range all {
			if versioned == objects.Enabled && x.acked && !x.marker && !x.deletes && !versions[x] {
				return fmt.Errorf("version %s of %q is lost: %q", x.id, key, x.body)
			}
		}
	}
	return care.OfBucket(b).Audit(ctx, "", nil, func(a care.Audited) error {
		if len(a.Findings) > 0 {
			return fmt.Errorf("an audit finds: %s: %s", a.Findings[0].Fault, &a.Findings[0])
		}
		if a.Waiting+a.Young+a.InUse+a.Unjudged > 0 {
			return fmt.Errorf("what no version has is left: %+v", a)
		}
		return nil
	})
}

func bodyOf(ctx context.Context, b *objects.Bucket, key string, id objects.ID) (string, error) {
	got, err := b.Get(ctx, []byte(key), id, objects.All)
	if err != nil {
		return "", err
	}
	defer got.Body.Close()
	body, err := io.ReadAll(got.Body)
	return string(body), err
}

// keeper is a process that cleans a bucket of objects, and audits it.
type keeper struct {
	*stage
	l *ledger
	o *objects.Objects
	a *actor
	r *rand.Rand
}

func (k *keeper) run(ctx context.Context) {
	all := care.Of(k.o)
	if !k.c.Mistakes.NearCleaner {
		all = all.Everywhere()
	}
	b := all.BucketOf(listing.BucketInfo{Name: "b"})
	var c care.Cleaner
	for n := 0; ctx.Err() == nil && !k.s.failed(); n++ {
		every := 20 * time.Minute
		if k.left.Load() == 0 { // clients have ended
			every = 6 * time.Hour
		}
		time.Sleep(every/2 + time.Duration(k.r.Int64N(int64(every))))
		if c == nil || k.r.IntN(8) == 0 { // one that dies is followed by another one
			var err error
			if c, err = b.Cleaner(care.CleanOptions{Grace: objectsGrace, Settled: objectsSettled}); err != nil {
				k.s.fail("%s: %v", k.a.name, err)
				return
			}
		}
		done, err := c.Pass(ctx)
		k.l.mu.Lock()
		k.l.finished += done.Finished
		k.l.ended += int(done.Freed)
		k.l.mu.Unlock()
		if err != nil && !excused(err) && ctx.Err() == nil || done.Damaged > 0 {
			k.s.fail("%s: a pass: %v, %d damaged", k.a.name, err, done.Damaged)
		}
		if k.r.IntN(3) > 0 {
			continue
		}
		err = b.Audit(ctx, "", nil, func(a care.Audited) error {
			for _, f := range a.Findings {
				switch {
				case f.Fault.Condemnable():
					_ = c.Condemn(ctx, f) // it may be too young
				case ctx.Err() == nil:
					k.s.fail("%s: an audit finds: %s: %s", k.a.name, f.Fault, &f)
				}
			}
			return nil
		})
		if err != nil && !excused(err) && ctx.Err() == nil {
			k.s.fail("%s: an audit: %v", k.a.name, err)
		}
	}
}

// putter is a client that puts, reads and deletes objects.
type putter struct {
	*stage
	l         *ledger
	b         *objects.Bucket
	a         *actor
	r         *rand.Rand
	versioned bool
	n         int
	uploads   []*parts
}

// parts is an upload of an object in parts that a client has begun.
type parts struct {
	x       *try
	id      objects.UploadID
	pieces  []string
	named   []objects.Part
	aborted bool
}

func (x *putter) run(ctx context.Context) {
	for range x.c.Ops {
		if ctx.Err() != nil || x.s.failed() {
			return
		}
		time.Sleep(time.Duration(x.r.Int64N(int64(20 * time.Minute))))
		key := fmt.Sprintf("o%d", x.r.IntN(x.c.Keys))
		switch n := x.r.IntN(100); {
		case n >= x.c.Writes && n%3 == 0:
			x.readVersion(ctx, key)
		case n >= x.c.Writes:
			x.read(ctx, key)
		case n%10 < 3:
			x.upload(ctx, key)
		case n%10 < 5 && x.versioned:
			x.deleteVersion(ctx, key)
		case n%10 < 6:
			t := x.try(key, true)
			info, err := x.b.Delete(ctx, []byte(key))
			x.l.end(t, info.ID, err)
			x.tolerate("delete", err)
		default:
			t := x.try(key, false)
			x.l.begin(t)
			info, err := x.b.Put(ctx, []byte(key), strings.NewReader(t.body), objects.Meta{Size: -1})
			x.l.end(t, info.ID, err)
			x.tolerate("put", err)
		}
	}
}

func (x *putter) try(key string, marker bool) *try {
	x.n++
	t := &try{key: key, marker: marker, centre: x.a.centre, body: fmt.Sprintf("%s.%d of %s", x.a.name, x.n, key)}
	t.body += strings.Repeat(".", x.r.IntN(30)) // in its row, or not
	if marker {
		x.l.begin(t)
	}
	return t
}

func (x *putter) read(ctx context.Context, key string) {
	must, deleted := x.l.newest(key, x.a.centre)
	got, err := x.b.Get(ctx, []byte(key), objects.Latest, objects.All)
	if err != nil && store.KindOf(err) != store.NotFound {
		x.tolerate("get", err)
		return
	}
	var id objects.ID
	var body []byte
	if err == nil {
		id = got.ID
		body, err = io.ReadAll(got.Body)
		_ = got.Body.Close()
		if err != nil {
			x.tolerate("read a body", err)
			return
		}
	}
	if err := x.l.read(key, x.a.centre, must, deleted, id, string(body), err == nil); err != nil {
		x.s.fail("%s: %v", x.a.name, err)
	}
}

// some returns a random acknowledged version of a key, or nil if the key has none.
func (x *putter) some(key string) *try {
	x.l.mu.Lock()
	defer x.l.mu.Unlock()
	all := slices.DeleteFunc(slices.Clone(x.l.byKey[key]), func(t *try) bool { return !t.acked || t.marker })
	if len(all) == 0 {
		return nil
	}
	return all[x.r.IntN(len(all))]
}

func (x *putter) readVersion(ctx context.Context, key string) {
	t := x.some(key)
	if t == nil {
		return
	}
	x.l.mu.Lock()
	gone := t.gone[x.a.centre] > 0
	x.l.mu.Unlock()
	body, err := bodyOf(ctx, x.b, key, t.id)
	x.l.mu.Lock()
	must := x.versioned && t.centre == x.a.centre && !t.deletes
	x.l.mu.Unlock()
	switch {
	case err != nil && store.KindOf(err) != store.NotFound:
		x.tolerate("get a version", err)
	case err != nil && must:
		x.s.fail("%s: version %s of %q was acknowledged: %q: %v", x.a.name, t.id, key, t.body, err)
	case err == nil && gone:
		x.s.fail("%s: version %s of %q was deleted, and is shown", x.a.name, t.id, key)
	case err == nil && body != t.body:
		x.s.fail("%s: version %s of %q has the body %q, was %q", x.a.name, t.id, key, body, t.body)
	}
}

func (x *putter) deleteVersion(ctx context.Context, key string) {
	t := x.some(key)
	if t == nil {
		return
	}
	x.l.mu.Lock()
	t.deletes = true
	x.l.mu.Unlock()
	_, err := x.b.DeleteVersion(ctx, []byte(key), t.id)
	if errors.Is(err, listing.ErrNotFound) {
		return // it has not come here yet
	}
	x.tolerate("delete a version", err)
	if err == nil {
		x.l.mu.Lock()
		x.l.deleted++
		if t.gone[x.a.centre] == 0 {
			t.gone[x.a.centre] = x.l.deleted
		}
		x.l.mu.Unlock()
	}
}

// upload begins an upload in parts, or continues one: it puts parts, and completes or aborts the upload.
func (x *putter) upload(ctx context.Context, key string) {
	if len(x.uploads) == 0 || x.r.IntN(4) == 0 {
		t := x.try(key, false)
		u, err := x.b.CreateUpload(ctx, []byte(key), objects.Meta{})
		if err != nil {
			x.tolerate("create an upload", err)
			return
		}
		p := &parts{x: t, id: u.ID}
		for rest := t.body; rest != ""; {
			n := min(1+x.r.IntN(len(t.body)), len(rest))
			p.pieces, rest = append(p.pieces, rest[:n]), rest[n:]
		}
		p.named = make([]objects.Part, len(p.pieces))
		x.uploads = append(x.uploads, p)
	}
	p := x.uploads[x.r.IntN(len(x.uploads))]
	for i := range p.named {
		if p.named[i].ETag != "" {
			continue
		}
		part, err := x.b.PutPart(ctx, []byte(p.x.key), p.id, i+1, strings.NewReader(p.pieces[i]), objects.Meta{Size: -1})
		if err != nil {
			x.gone(p, "put a part", err)
			return
		}
		p.named[i] = objects.Part{Number: i + 1, ETag: part.ETag}
		if x.r.IntN(3) == 0 {
			return
		}
	}
	if x.r.IntN(6) == 0 {
		if err := x.b.Abort(ctx, []byte(p.x.key), p.id); err != nil {
			x.gone(p, "abort", err)
		} else {
			p.aborted = true
		}
	}
	if !p.x.acked && !p.x.unknown && !p.aborted {
		x.l.begin(p.x)
	}
	info, err := x.b.Complete(ctx, []byte(p.x.key), p.id, p.named, nil)
	if err == nil && p.aborted {
		x.s.fail("%s: upload %s of %q was completed after it was aborted", x.a.name, p.id, p.x.key)
		return
	}
	x.l.mu.Lock()
	if err == nil && !p.x.acked {
		p.x.acked, p.x.id = true, info.ID
		x.l.acked++
	} else if err == nil && p.x.id != info.ID {
		x.s.fail("%s: upload %s of %q became two versions, %s and %s", x.a.name, p.id, p.x.key, p.x.id, info.ID)
	}
	x.l.mu.Unlock()
	if err != nil {
		x.gone(p, "complete", err)
	}
}

// gone drops an upload that may have ended, after the operation what has failed with err.
func (x *putter) gone(p *parts, what string, err error) {
	switch {
	case errors.Is(err, objects.ErrNoSuchUpload) || store.KindOf(err) == store.Conflict:
		x.uploads = slices.DeleteFunc(x.uploads, func(o *parts) bool { return o == p })
	default:
		x.tolerate(what, err)
	}
}

func (x *putter) tolerate(what string, err error) {
	if err != nil && !excused(err) && !errors.Is(err, door.ErrTooLate) {
		x.s.fail("%s: %s: %v", x.a.name, what, err)
	}
}
