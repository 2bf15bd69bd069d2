package cassandrastore

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/gocql/gocql"

	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/store"
)

// far has a session (connections to Cassandra) to each data centre other than the local one. A session is opened once,
// in the background, for all callers that need it, and kept until close. Callers wait until the session is open, or
// until their own contexts end. After a failed attempt there is a pause, in which callers get the error of that
// attempt.
type far[S interface{ Close() }] struct {
	// open opens a session to the given data centre. It takes as long as the driver's own limits of each step allow.
	open func(ctx context.Context, dataCentre string) (S, error)

	ctx  context.Context // ends when close is called
	stop context.CancelFunc
	work sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	openings map[string]*opening[S] // the last opening in each data centre
}

// opening is one attempt to open a session to another data centre. The channel done is closed when the attempt has
// ended. The fields below done are set before the channel is closed, under the mutex of far.
type opening[S any] struct {
	done     chan struct{}
	ended    bool
	session  S
	err      error
	failures int       // the number of failures in a row, this opening included
	again    time.Time // the time from which the next opening may begin after a failure
}

// farPauses are the pauses after an attempt to open a session to another data centre has failed. They are random, so
// that many processes that have lost a data centre do not all try again at the same moment.
var farPauses = wait.Backoff{First: 250 * time.Millisecond, Most: 5 * time.Second, Jitter: 0.5}

func newFar[S interface{ Close() }](open func(ctx context.Context, dataCentre string) (S, error)) *far[S] {
	f := &far[S]{open: open, openings: map[string]*opening[S]{}}
	f.ctx, f.stop = context.WithCancel(context.Background())
	return f
}

// in returns a session to the given data centre, and opens a session if there is none. It fails with Unavailable if the
// session is not yet open when ctx ends. After a failed attempt to open a session, in returns the error of that
// attempt, until the pause before the next attempt is over.
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

// begin returns the last attempt to open a session to the given data centre, or begins a new one in the background. A
// new attempt begins if there was none, or if the last one has failed and the pause after the failure is over. After
// close, begin fails with store.ErrClosed.
func (f *far[S]) begin(dataCentre string) (*opening[S], error) {
	// Opening a session takes a dozen round trips. A caller that asks for the time of a distant node waits half a
	// second at most. If the opening ended with that caller, each caller would begin anew.
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

// close closes the sessions to all other data centres, including sessions that are still being opened. Later calls of
// in fail with store.ErrClosed.
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
	for _, o := range f.openings { // no opening is added any more
		if o.err == nil {
			o.session.Close()
		}
	}
}

// contacts is the largest number of nodes of another data centre that the driver tries, one after the other, to open a
// session there. In a large data centre that can't be reached, trying all nodes would take minutes.
const contacts = 3

// openIn opens a session to the given data centre, which is not the local one. The nodes of that data centre coordinate
// the requests of the session. openIn fails with Unavailable.
func (s *database) openIn(ctx context.Context, dataCentre string) (*gocql.Session, error) {
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

// openFar begins to open sessions to all other data centres that have copies. So the first writes of a process need not
// wait for a session. If opening a session fails, it is tried again when the session is needed.
func (s *database) openFar() {
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
