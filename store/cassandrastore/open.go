package cassandrastore

import (
	"context"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/store"
)

// Open connects to a Cassandra cluster whose schema exists, and returns a store on the cluster. It fails with
// Unavailable if no host can be reached. It fails with InvalidArgument, and a remedy in the message, if
//   - the data centre is unknown,
//   - the login is missing or wrong, or
//   - the schema or the configuration would make the store incorrect (see Admin.Check).
func Open(ctx context.Context, o Options) (Store, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	levels, err := o.Consistency.levels()
	if err != nil {
		return nil, err
	}
	auth, err := o.authenticator()
	if err != nil {
		return nil, err
	}
	if err := checkCluster(ctx, o); err != nil {
		return nil, err
	}
	measures := newMeasures()
	session, err := o.session(ctx, measures, auth, o.DataCentre, o.Keyspace, nearConnections)
	if err != nil {
		return nil, fail(ctx, err, "open", o.Keyspace)
	}
	memory, err := newMemory()
	if err != nil {
		session.Close()
		return nil, err
	}
	s := &database{
		o: o, levels: levels, session: session, auth: auth, sites: map[string]string{}, measures: measures,
	}
	s.far = newFar(s.openIn)
	s.rows = rows{s: s, read: levels.readRows, write: levels.writeRows, memory: memory}
	if err := s.checkFilled(ctx); err != nil {
		session.Close()
		return nil, fail(ctx, err, "open", o.Keyspace)
	}
	s.far.work.Go(s.openFar)
	return s, nil
}

// checkCluster returns an error if the cluster has no data centre with the name in the options o, or has problems that
// prevent Open. It only logs other problems of the cluster.
func checkCluster(ctx context.Context, o Options) error {
	a, err := OpenAdmin(ctx, o)
	if err != nil {
		return err
	}
	defer a.Close()
	names, err := a.DataCentres(ctx)
	if err != nil {
		return err
	}
	if !slices.Contains(names, o.DataCentre) {
		return store.Errorf(
			store.InvalidArgument, "there is no data centre %q in this cluster: it has %s", o.DataCentre,
			strings.Join(names, ", "),
		)
	}
	problems, err := a.Check(ctx)
	if err != nil {
		return err
	}
	var fatal []string
	for _, p := range problems {
		if p.Fatal {
			fatal = append(fatal, p.String())
		} else {
			o.Log.Warn("Cassandra: "+p.What, "where", p.Where)
		}
	}
	if len(fatal) > 0 {
		return store.Errorf(store.InvalidArgument, "evenkeel can't work on this cluster: %s", strings.Join(fatal, "; "))
	}
	return nil
}
