package cassandrastore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gocql/gocql"

	"github.com/evenkeel/evenkeel/store"
)

// connect opens a session (connections of the driver) to the cluster that c describes. The error says why each host
// could not be reached. If ctx ends first, connect returns at once.
func connect(ctx context.Context, c *gocql.ClusterConfig) (*gocql.Session, error) {
	// The driver does not say why a host could not be reached, so the errors of the connections are recorded. The
	// driver can't be interrupted, so the session of a caller that has gone is closed as soon as it is open.
	watch := &connectErrors{patience: c.ConnectTimeout}
	c.ConnectObserver = watch
	if c.Authenticator == nil {
		c.Authenticator = nobody{}
	}
	type result struct {
		session *gocql.Session
		err     error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		for range mostConnects {
			if r.session, r.err = c.CreateSession(); r.err == nil || !watch.mute() || ctx.Err() != nil {
				break
			}
		}
		done <- r
	}()
	select {
	case r := <-done:
		if r.err != nil {
			return nil, watch.explain(c, r.err)
		}
		return r.session, nil
	case <-ctx.Done():
		go func() {
			if r := <-done; r.session != nil {
				r.session.Close()
			}
		}()
		return nil, store.Errorf(store.Timeout, "connecting to %s: %w", strings.Join(c.Hosts, ", "), ctx.Err())
	}
}

// mostConnects is the largest number of attempts to open a session to the cluster. A failed attempt is repeated only if
// the driver does not say why a connection has failed.
const mostConnects = 3

// connectErrors observes the connections that the driver opens. It keeps the error of the last connection that failed,
// and the name of its host, for an error message.
type connectErrors struct {
	mu   sync.Mutex
	last error
	host string
	took time.Duration // of the last connection that failed
	// patience is how long the driver waits for the answer to its first request.
	patience time.Duration
}

// ObserveConnect records the error, the host and the duration of a connection that failed. The driver calls it after
// each attempt to connect. It implements gocql.ConnectObserver.
func (w *connectErrors) ObserveConnect(o gocql.ObservedConnect) {
	if o.Err == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last, w.host, w.took = o.Err, o.Host.HostnameAndPort(), o.End.Sub(o.Start)
}

// mute reports whether the error of the last failed connection hides the reason of the failure. Another attempt then
// probably returns the reason.
func (w *connectErrors) mute() bool {
	// If a server closes a connection at once, for lack of a certificate for example, the driver either returns the
	// reason or, by chance, says that no response came in time.
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last != nil && w.took < w.patience && strings.Contains(w.last.Error(), "no response to connection startup")
}

// explain returns the error of opening a session to the cluster c, with the reason for which the last connection
// failed. err is the error of the driver.
func (w *connectErrors) explain(c *gocql.ClusterConfig, err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last == nil {
		return store.Errorf(store.Unavailable, "connecting to %s: %w", strings.Join(c.Hosts, ", "), err)
	}
	var protocol gocql.ErrProtocol
	switch number, fromServer := code(w.last); {
	case errors.Is(w.last, errNobody):
		return store.Errorf(store.InvalidArgument, "%s wants a login: give a user and a password file", w.host)
	case fromServer && number == gocql.ErrCodeCredentials:
		return store.Errorf(
			store.InvalidArgument, "%s refuses the user: check the user's name and the password file: %w", w.host, w.last,
		)
	case fromServer && number == gocql.ErrCodeProtocol, errors.As(w.last, &protocol):
		return store.Errorf(
			store.InvalidArgument, "%s does not speak version 4 of Cassandra's protocol: Cassandra 5.0 does: %w", w.host, w.last,
		)
	}
	return store.Errorf(
		store.Unavailable, "connecting to %s (is Cassandra running there, and its port %d reachable?): %w", w.host, c.Port,
		w.last,
	)
}

// nobody is the authenticator of a session without a user. If the server asks for a login, its methods return an error
// that says that no user is given.
type nobody struct{}

// errNobody says that the server wants a login, but that the options have no user.
var errNobody = errors.New("no user is given")

// Challenge returns the error that no user is given. The driver calls it when the server asks for a login. It
// implements gocql.Authenticator.
func (nobody) Challenge([]byte) ([]byte, gocql.Authenticator, error) { return nil, nil, errNobody }

// Success returns nil: nothing is done after a login. It implements gocql.Authenticator.
func (nobody) Success([]byte) error { return nil }

// Admin is a connection to a Cassandra cluster for checking the cluster and creating its schema. OpenAdmin opens it.
// Unlike Store, an Admin needs no schema, and may use hosts of any data centre.
type Admin interface {
	// Apply creates the keyspace and all tables that evenkeel needs. r is the number of copies of each row in each data
	// centre. A keyspace or table that exists already is left unchanged. Apply returns when all nodes know the schema.
	Apply(ctx context.Context, r Replication) error
	// Check returns all problems of the cluster. It compares the schema that exists, the versions of the nodes, and the
	// configuration of the node that answers with what the store needs. Check fails if the cluster can't be read.
	Check(ctx context.Context) ([]Problem, error)
	// CheckRepairs returns a warning if the rows are not repaired often enough, as far as Cassandra's records show,
	// else nil. Every row must be repaired well within the time for which tombstones are kept, or deleted rows come
	// back. The parameter now is the present time, from which the age of a repair counts.
	CheckRepairs(ctx context.Context, now time.Time) ([]Problem, error)
	// DataCentres returns the names of the Cassandra cluster's data centres, sorted.
	DataCentres(ctx context.Context) ([]string, error)
	// Drop deletes the keyspace with all its tables and rows. It is no error if there is no such keyspace.
	Drop(ctx context.Context) error
	// Close closes the connection to the Cassandra cluster.
	Close()
}

// admin is a connection that OpenAdmin has opened. It implements Admin.
type admin struct {
	session *gocql.Session
	o       Options
}

// anyDataCentre stands for all data centres. OpenAdmin puts it in place of an empty Options.DataCentre.
const anyDataCentre = "*"

// OpenAdmin connects to a cluster in order to check the cluster or to create its schema. If Options.DataCentre is
// empty, hosts of any data centre are used. The caller closes the returned Admin.
func OpenAdmin(ctx context.Context, o Options) (Admin, error) {
	if o.DataCentre == "" {
		o.DataCentre = anyDataCentre
	}
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	auth, err := o.authenticator()
	if err != nil {
		return nil, err
	}
	open := func(accepts *firstHosts) (*gocql.Session, error) {
		c := o.cluster(auth)
		c.Timeout = max(c.Timeout, adminTimeout)
		c.NumConns = 1
		c.HostFilter = accepts
		c.PoolConfig.HostSelectionPolicy = &inTurn{gocql.RoundRobinHostPolicy(), newFirstNode()}
		return connect(ctx, c)
	}
	near := &firstHosts{dataCentre: o.DataCentre}
	session, err := open(near)
	if err != nil && near.onlyOthers() {
		session, err = open(&firstHosts{dataCentre: anyDataCentre}) // hosts elsewhere tell which data centres there are
	}
	if err != nil {
		return nil, fail(ctx, err, "open", "Cassandra")
	}
	return &admin{session: session, o: o}, nil
}

// adminTimeout is the time limit of a statement of an Admin. It is longer than that of any request of a Store: a busy
// cluster needs seconds to create a table, and what is given up before may have been done.
const adminTimeout = 30 * time.Second

// adminHosts is the largest number of hosts to which an Admin connects. It is more than one, since a host may be down.
const adminHosts = 3

// firstHosts is a filter of the hosts to which the driver connects. It accepts the first adminHosts hosts of one data
// centre, or of any data centre (anyDataCentre), and refuses all others.
//
// The hosts of other data centres may be out of reach, and the driver would need time to find that out for each host.
type firstHosts struct {
	dataCentre string

	mu       sync.Mutex
	accepted []string // the ids of the accepted hosts
	others   bool     // a host of another data centre was refused
}

// Accept reports whether the driver may connect to the host h. It implements gocql.HostFilter.
func (f *firstHosts) Accept(h *gocql.HostInfo) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dataCentre != anyDataCentre && f.dataCentre != h.DataCenter() {
		f.others = true
		return false
	}
	if !slices.Contains(f.accepted, h.HostID()) && len(f.accepted) < adminHosts {
		f.accepted = append(f.accepted, h.HostID())
	}
	return slices.Contains(f.accepted, h.HostID())
}

// onlyOthers reports whether the driver has found hosts, but none in the wanted data centre. In this case, the name of
// the data centre may be wrong.
func (f *firstHosts) onlyOthers() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.others && len(f.accepted) == 0
}

// Close closes the connection to the Cassandra cluster. It implements Admin.
func (a *admin) Close() { a.session.Close() }

// Apply creates the keyspace and all tables that evenkeel needs. It implements Admin.
func (a *admin) Apply(ctx context.Context, r Replication) error {
	create, err := createKeyspace(a.o.Keyspace, r)
	if err != nil {
		return err
	}
	statements := []string{create}
	for _, t := range tables() {
		statements = append(statements, t.create(a.o.Keyspace))
	}
	for _, statement := range statements {
		if err := a.session.Query(strings.TrimSuffix(statement, ";")).WithContext(ctx).Exec(); err != nil {
			return fail(ctx, err, "create the schema of", a.o.Keyspace)
		}
	}
	if err := a.session.AwaitSchemaAgreement(ctx); err != nil {
		return fail(ctx, err, "wait until all nodes know the schema of", a.o.Keyspace)
	}
	return nil
}

// Drop deletes the keyspace with all its tables and rows. It implements Admin.
func (a *admin) Drop(ctx context.Context) error {
	err := a.session.Query("DROP KEYSPACE IF EXISTS " + a.o.Keyspace).WithContext(ctx).Exec()
	return fail(ctx, err, "drop", a.o.Keyspace)
}

// DataCentres returns the names of the cluster's data centres, sorted. It implements Admin.
func (a *admin) DataCentres(ctx context.Context) ([]string, error) {
	names := map[string]bool{}
	iter := a.session.Query("SELECT data_center FROM system.peers").WithContext(ctx).Consistency(gocql.One).Iter()
	var name string
	for iter.Scan(&name) {
		names[name] = true
	}
	// A node's peers are all nodes but itself.
	if host := iter.Host(); host != nil {
		names[host.DataCenter()] = true
	}
	if err := iter.Close(); err != nil {
		return nil, fail(ctx, err, "list", "data centres")
	}
	return sorted(names), nil
}

// settingsTable is the name of Cassandra's virtual table with the configuration of a node. A role can read the table
// only with a grant.
const settingsTable = "system_views.settings"

// setting returns the value of the configuration setting with the given name on the Cassandra node that answers. The
// value is "" if the node has no such setting.
func (a *admin) setting(ctx context.Context, name string) (string, error) {
	var value string
	err := a.session.Query("SELECT value FROM "+settingsTable+" WHERE name = ?", name).
		WithContext(ctx).Consistency(gocql.One).Scan(&value)
	if errors.Is(err, gocql.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", fail(ctx, err, "read", "the setting "+name)
	}
	return value, nil
}
