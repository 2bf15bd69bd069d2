package cassandrastore

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/gocql/gocql"

	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/wait"
)

// far has a session for each other data centre. The session is opened in the background, once for all who ask for it,
// and kept until close.
//
// Opening a session takes a dozen round trips, so it must not end with the caller that was the first to ask: who asks
// for the time of a distant node waits half a second at most, and would begin anew each time. So callers wait for an
// opening no longer than their own context lasts, and the opening goes on without them. After a failure callers get
// its error, until the pause before the next opening is over.
type far[S interface{ Close() }] struct {
	// open opens a session. It takes as long as the driver's own limits of each step allow.
	open func(ctx context.Context, dataCentre string) (S, error)

	ctx  context.Context // ends with close
	stop context.CancelFunc
	work sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	openings map[string]*opening[S] // the last one of each data centre
}

// opening is the opening of a session. What follows done is set before done is closed, under the mutex of far.
type opening[S any] struct {
	done     chan struct{}
	ended    bool
	session  S
	err      error
	failures int       // in a row, this one included
	again    time.Time // when the next opening may begin after a failure
}

// farPauses are the pauses between two openings that fail. They are random, as many processes miss a data centre at the
// same time, and find it back at the same time.
var farPauses = wait.Backoff{First: 250 * time.Millisecond, Most: 5 * time.Second, Jitter: 0.5}

func newFar[S interface{ Close() }](open func(ctx context.Context, dataCentre string) (S, error)) *far[S] {
	f := &far[S]{open: open, openings: map[string]*opening[S]{}}
	f.ctx, f.stop = context.WithCancel(context.Background())
	return f
}

// in returns the session of a data centre. It fails with Unavailable while there is none.
func (f *far[S]) in(ctx context.Context, dataCentre string) (session S, err error) {
	o, err := f.begin(dataCentre)
	if err != nil {
		return session, err
	}
	select {
	case <-o.done:
		return o.session, o.err
	case <-ctx.Done():
		return session, store.Errorf(
			store.Unavailable, "the connection to the data centre %s is still being opened: %w", dataCentre, ctx.Err(),
		)
	}
}

// begin returns the last opening of a data centre's session, or begins one if there was none, or if the last one has
// failed and the pause after it is over.
func (f *far[S]) begin(dataCentre string) (*opening[S], error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, store.ErrClosed
	}
	last := f.openings[dataCentre]
	if last != nil && (!last.ended || last.err == nil || time.Now().Before(last.again)) {
		return last, nil
	}
	o := &opening[S]{done: make(chan struct{})}
	if last != nil {
		o.failures = last.failures
	}
	f.openings[dataCentre] = o
	f.work.Go(func() {
		session, err := f.open(f.ctx, dataCentre)
		f.mu.Lock()
		defer f.mu.Unlock()
		switch {
		case err != nil:
			o.err, o.failures = err, o.failures+1
			o.again = time.Now().Add(farPauses.Pause(o.failures))
		case f.closed:
			session.Close()
			o.err = store.ErrClosed
		default:
			o.session = session
		}
		o.ended = true
		close(o.done)
	})
	return o, nil
}

// close closes all sessions, also those that are still being opened.
func (f *far[S]) close() {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return
	}
	f.closed = true
	f.mu.Unlock()
	f.stop()
	f.work.Wait()
	for _, o := range f.openings { // none is added any more
		if o.err == nil {
			o.session.Close()
		}
	}
}

// contacts is the number of nodes by which the driver may find a data centre. It tries them one after the other, so
// with all nodes of a large one that is away an opening would take minutes.
const contacts = 3

// openIn opens a session whose coordinators are in another data centre.
func (s *Store) openIn(ctx context.Context, dataCentre string) (*gocql.Session, error) {
	nodes, err := s.nodes(ctx)
	if err != nil {
		return nil, err
	}
	o := s.o
	o.Hosts = nil
	for _, n := range nodes {
		if n.DataCentre == dataCentre {
			o.Hosts = append(o.Hosts, n.Address)
		}
	}
	if len(o.Hosts) == 0 {
		return nil, store.Errorf(store.Unavailable, "no node of the data centre %s is known", dataCentre)
	}
	rand.Shuffle(len(o.Hosts), func(i, j int) { o.Hosts[i], o.Hosts[j] = o.Hosts[j], o.Hosts[i] })
	o.Hosts = o.Hosts[:min(contacts, len(o.Hosts))]
	session, err := o.session(ctx, s.measures, s.auth, dataCentre, o.Keyspace, farConnections)
	if err != nil {
		// Not InvalidArgument: the caller's arguments are valid.
		return nil, store.Errorf(store.Unavailable, "%w", err)
	}
	return session, nil
}

// openFar begins to open the sessions of all other data centres with copies, so that the first writes of a process
// need not wait for them. What fails here is opened when it is needed.
func (s *Store) openFar() {
	replication, err := s.replication(s.far.ctx)
	if err != nil {
		return
	}
	for dataCentre := range copiesOf(replication) {
		if dataCentre != s.o.DataCentre {
			_, _ = s.far.begin(dataCentre)
		}
	}
}
