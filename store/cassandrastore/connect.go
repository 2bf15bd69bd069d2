package cassandrastore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/gocql/gocql"

	"github.com/evenkeel/evenkeel/store"
)

// connect opens a session. The driver's error does not have the causes of the single hosts, so
// they are observed. The driver can't be interrupted, so a session that is opened too late is
// closed then.
func connect(ctx context.Context, c *gocql.ClusterConfig) (*gocql.Session, error) {
	watch := &connectErrors{}
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
		session, err := c.CreateSession()
		done <- result{session, err}
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

// connectErrors keeps the last error of connecting to a host.
type connectErrors struct {
	mu   sync.Mutex
	last error
	host string
}

// ObserveConnect implements gocql.ConnectObserver.
func (w *connectErrors) ObserveConnect(o gocql.ObservedConnect) {
	if o.Err == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last, w.host = o.Err, o.Host.HostnameAndPort()
}

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

// nobody is the authenticator without a user. Its error says that a user is needed.
type nobody struct{}

var errNobody = errors.New("no user is given")

// Challenge implements gocql.Authenticator.
func (nobody) Challenge([]byte) ([]byte, gocql.Authenticator, error) { return nil, nil, errNobody }

// Success implements gocql.Authenticator.
func (nobody) Success([]byte) error { return nil }

// Admin is a connection to check a cluster and to create its schema. Unlike Store it needs no
// schema, and accepts hosts of any data centre.
type Admin struct {
	session *gocql.Session
	o       Options
}

const anyDataCentre = "*"

// OpenAdmin connects. Of the options, DataCentre may be empty.
func OpenAdmin(ctx context.Context, o Options) (*Admin, error) {
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
		c.NumConns = 1
		c.HostFilter = accepts
		c.PoolConfig.HostSelectionPolicy = &inTurn{gocql.RoundRobinHostPolicy(), newFirstNode()}
		return connect(ctx, c)
	}
	near := &firstHosts{dataCentre: o.DataCentre}
	session, err := open(near)
	if err != nil && near.onlyOthers() {
		session, err = open(&firstHosts{dataCentre: anyDataCentre}) // which tell what data centres there are
	}
	if err != nil {
		return nil, fail(ctx, err, "open", "Cassandra")
	}
	return &Admin{session: session, o: o}, nil
}

// adminHosts is the number of hosts an Admin connects to: one of them may be down.
const adminHosts = 3

// firstHosts accepts the first adminHosts hosts of a data centre, or of all (anyDataCentre). Hosts elsewhere may be out of
// reach, and cost what it takes to find that out.
type firstHosts struct {
	dataCentre string

	mu       sync.Mutex
	accepted []string // by id
	others   bool     // a host elsewhere was refused
}

// Accept implements gocql.HostFilter.
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

// onlyOthers reports whether all hosts that were met are in other data centres.
func (f *firstHosts) onlyOthers() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.others && len(f.accepted) == 0
}

// Close closes the connection.
func (a *Admin) Close() { a.session.Close() }

// Apply creates the keyspace and the tables where they are missing. It changes
// nothing that exists.
func (a *Admin) Apply(ctx context.Context, r Replication) error {
	create, err := CreateKeyspace(a.o.Keyspace, r)
	if err != nil {
		return err
	}
	statements := []string{create}
	for _, t := range Tables() {
		statements = append(statements, t.Create(a.o.Keyspace))
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

// Drop drops the keyspace with everything in it.
func (a *Admin) Drop(ctx context.Context) error {
	err := a.session.Query("DROP KEYSPACE IF EXISTS " + a.o.Keyspace).WithContext(ctx).Exec()
	return fail(ctx, err, "drop", a.o.Keyspace)
}

// DataCentres lists the names of the cluster's data centres.
func (a *Admin) DataCentres(ctx context.Context) ([]string, error) {
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

// settingsTable is a virtual table that roles may read only with a grant.
const settingsTable = "system_views.settings"

// setting reads a setting of the node that answers, "" if it has none of that name.
func (a *Admin) setting(ctx context.Context, name string) (string, error) {
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
