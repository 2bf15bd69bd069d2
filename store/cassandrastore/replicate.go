package cassandrastore

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gocql/gocql"

	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/store"
)

// A change of a keyspace's replication changes which replicas form a quorum.
//
// An example: with three copies in dc1, two of three replicas decide a swap. Once dc2 has three copies, too, four of
// six replicas are a quorum. These four may be the three new replicas, which are empty, and the replica of dc1 that
// lacks the last swap. Then a root would go back to an older map. The same can happen when a data centre is removed: if
// four of six replicas have decided a swap, perhaps only one of the three that stay knows it.
//
// So before a change, every replica must know every register. A read of each whole table at ALL repairs the
// differences. From then on any quorum knows all registers. After the change, another read at ALL takes the registers
// to the new replicas. Names and maps must not change meanwhile: moves are paused, and nobody may create or delete
// buckets.
//
// Rows need no such care in the data centres that stay: each of these writes and reads rows by a quorum of its own. But
// a new data centre is empty until nodetool rebuild has copied the rows. A server there would list fewer keys than
// exist, and could not notice it. So the new data centre is marked as filling before it gets copies. Open refuses to
// work in a data centre with this mark.

// fillingKey is the key of a record in the table store.Process. The record is a JSON list of the names of the data
// centres that are new and do not have all rows yet ("filling").
var fillingKey = []byte("filling")

// planReplication checks a change of the number of copies, and returns the data centres that the change adds. The
// parameters are:
//   - now and wanted: the numbers of copies in each data centre before and after the change, where 0 means none
//   - filling: the new data centres that do not have all rows yet
//
// The change is refused, by an error, if
//   - a quorum of rows after the change might have no replica in common with a quorum from before,
//   - a data centre of filling has copies, and the change does anything else than remove it, or
//   - no data centre would keep a copy.
func planReplication(now, wanted Replication, filling []string) (added []string, err error) {
	// A change by one copy is allowed. After a change from three copies to four, a quorum is three replicas. At least
	// two of these are old, so the quorum meets every old quorum, which was two of three. After a change from three
	// copies to five, a quorum of three may contain only one old replica.
	var changed []string
	for _, name := range sorted(unite(now, wanted)) {
		was, is := now[name], wanted[name]
		switch {
		case is < 0:
			return nil, store.Errorf(store.InvalidArgument, "%d copies in the data centre %q", is, name)
		case was == is:
			continue
		case was == 0:
			added = append(added, name)
		case is != 0 && is-was != 1 && was-is != 1:
			return nil, store.Errorf(store.InvalidArgument, "%d copies in %s instead of %d: change it by one at a time, and "+
				"run nodetool repair --full on each of its nodes after each", is, name, was)
		}
		changed = append(changed, name)
	}
	if len(changed) > 1 {
		return nil, store.Errorf(store.InvalidArgument, "that changes the copies in %s: change one data centre at a time",
			strings.Join(changed, " and "))
	}
	for _, name := range filling {
		if len(changed) > 0 && now[name] != 0 && wanted[name] != 0 {
			return nil, store.Errorf(store.InvalidArgument, "the data centre %s has no complete copy yet: first run nodetool "+
				"rebuild on each of its nodes, and rebalancer schema filled %[1]s", name)
		}
	}
	if len(wanted.kept()) == 0 {
		return nil, store.Errorf(store.InvalidArgument, "no data centre would keep a copy")
	}
	return added, nil
}

// unite merges two maps with the number of copies in each data centre. For a data centre in both, the number in b
// counts.
func unite(a, b Replication) Replication {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// kept returns a copy of r (the number of copies in each data centre) without the data centres that have zero copies.
func (r Replication) kept() Replication {
	r = maps.Clone(r)
	maps.DeleteFunc(r, func(_ string, copies int) bool { return copies == 0 })
	return r
}

// Replication returns the number of copies of each row that the keyspace keeps in each data centre. It fails with
// InvalidArgument for a replication that this package can't change, such as one with transient copies.
func (s *database) Replication(ctx context.Context) (Replication, error) {
	options, err := s.replication(ctx)
	r := copiesOf(options)
	if err == nil && len(r) != len(options)-1 { // one option is the class
		err = store.Errorf(store.InvalidArgument, "the replication is %v: only numbers of copies are understood", options)
	}
	return r, fail(ctx, err, "read the replication of", s.o.Keyspace)
}

// Replicate changes the number of copies of each row that the keyspace keeps in each data centre to wanted. A change
// adds a data centre, removes one, or changes the number in one data centre by one. Names and maps of buckets must not
// change meanwhile. A data centre that is added is marked as filling, until Filled is called.
//
// Replicate brings all registers to every replica, and returns their number. If it fails, repeat it: steps that are
// done already are not repeated.
//
// Replicate needs all nodes of all data centres, with one exception. If lost is not empty, it is the name of a data
// centre that the change removes, and whose nodes are all gone for good. If such a data centre answers, Replicate
// refuses the change.
func (s *database) Replicate(ctx context.Context, wanted Replication, lost string) (registers int, err error) {
	// With lost, the registers are not read before the change: every register that all data centres have acknowledged
	// is known to a quorum of each data centre that stays.
	defer func() { err = fail(ctx, err, "change the replication of", s.o.Keyspace) }()
	now, err := s.Replication(ctx)
	if err != nil {
		return 0, err
	}
	filling, err := s.filling(ctx)
	if err != nil {
		return 0, err
	}
	added, err := planReplication(now, wanted, filling)
	if err != nil {
		return 0, err
	}
	wanted = wanted.kept()
	if lost == "" {
		_, err = s.spread(ctx)
	} else {
		err = s.checkLost(ctx, wanted, lost)
	}
	if err == nil && len(added) > 0 {
		err = s.markFilling(ctx, func(names []string) []string { return append(names, added...) })
	}
	if err == nil && !maps.Equal(now, wanted) {
		err = s.alter(ctx, wanted, lost)
	}
	if err != nil {
		return 0, err
	}
	return s.spread(ctx)
}

// checkLost checks that the data centre with the name lost is gone for good. It returns an InvalidArgument error if
//   - a node of that data centre answers, or
//   - wanted, the number of copies in each data centre, gives it copies.
func (s *database) checkLost(ctx context.Context, wanted Replication, lost string) error {
	if wanted[lost] != 0 {
		return store.Errorf(store.InvalidArgument, "the data centre %s, which is lost, would keep copies", lost)
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	session, err := s.sessionIn(ctx, lost)
	if err == nil {
		err = session.Query("SELECT key FROM system.local").WithContext(ctx).Consistency(gocql.One).Exec()
	}
	if err == nil {
		return store.Errorf(store.InvalidArgument, "the data centre %s answers, so it is not lost: end its servers, and "+
			"remove it without --lost", lost)
	}
	return nil
}

// alter changes the number of copies that the keyspace keeps in each data centre to wanted. It returns when all nodes
// know the change. The parameter lost is empty, or the name of a data centre that is gone for good. alter does not wait
// for the nodes of that data centre.
func (s *database) alter(ctx context.Context, wanted Replication, lost string) error {
	statement, err := alterKeyspace(s.o.Keyspace, wanted)
	if err != nil {
		return err
	}
	err = s.session.Query(statement).WithContext(ctx).Exec() // the driver waits for all nodes, even dead ones
	if err == nil || lost == "" {
		return err
	}
	if disagree := s.agree(ctx, wanted, lost); disagree != nil {
		return store.Errorf(kind(err), "%w; %w", err, disagree)
	}
	return nil
}

const (
	// answerTime is the longest wait for an answer of a data centre that is said to be lost. Without an answer in this
	// time it counts as lost.
	answerTime = 5 * time.Second
	// agreeTime is the longest wait until all nodes know a change of the schema, which takes seconds. Then the change
	// of the schema fails with an error.
	agreeTime = 2 * time.Minute
)

// agree waits until all nodes have the same schema, in which the keyspace has the wanted number of copies in each data
// centre. It does not wait for the nodes of lost, a data centre that is gone for good.
func (s *database) agree(ctx context.Context, wanted Replication, lost string) error {
	ctx, cancel := context.WithTimeout(ctx, agreeTime)
	defer cancel()
	for {
		versions := map[gocql.UUID]bool{}
		var version gocql.UUID
		var dataCentre string
		local := s.session.Query("SELECT schema_version FROM system.local").WithContext(ctx).Consistency(gocql.One).Iter()
		local.Scan(&version)
		versions[version] = true
		peers := s.session.Query("SELECT data_center, schema_version FROM system.peers_v2").WithContext(ctx).
			Consistency(gocql.One).Iter()
		for peers.Scan(&dataCentre, &version) {
			gone := dataCentre == "" || version == gocql.UUID{} // the entry of a node that has left the cluster
			versions[version] = versions[version] || !gone && dataCentre != lost
		}
		if err := cmp.Or(local.Close(), peers.Close()); err != nil {
			return err
		}
		whole := local.Host().HostID() == peers.Host().HostID() // a node's peers are all nodes but itself
		now, err := s.Replication(ctx)
		if err != nil {
			return err
		}
		agreed := 0
		for _, counts := range versions {
			if counts {
				agreed++
			}
		}
		if whole && agreed == 1 && maps.Equal(now, wanted) {
			return nil
		}
		if err := wait.Sleep(ctx, 100*time.Millisecond); err != nil {
			return store.Wrap("wait until all nodes know the new replication", err)
		}
	}
}

// Filled removes the mark "filling" of a new data centre, which says that the data centre does not have all rows yet.
// Call Filled when nodetool rebuild has succeeded on each node of the data centre. From then on servers may work there.
// The result marked is true if the data centre had the mark.
func (s *database) Filled(ctx context.Context, dataCentre string) (marked bool, err error) {
	defer func() { err = fail(ctx, err, "take away the mark of", dataCentre) }()
	err = s.markFilling(ctx, func(names []string) []string {
		marked = slices.Contains(names, dataCentre)
		return slices.DeleteFunc(names, func(n string) bool { return n == dataCentre })
	})
	return marked, err
}

// markFilling changes the stored list of the data centres that are filling: they are new and do not have all rows yet.
// The function change gets the present list and returns the new list. markFilling returns once every data centre that
// has copies knows the new list.
func (s *database) markFilling(ctx context.Context, change func([]string) []string) error {
	r, err := s.Read(ctx, store.Process, fillingKey, store.Serial)
	names, err := fillingNames(r, err)
	if err != nil {
		return err
	}
	changed := change(slices.Clone(names))
	slices.Sort(changed)
	changed = slices.Compact(changed)
	if !slices.Equal(names, changed) {
		blob, err := json.Marshal(changed)
		if err != nil {
			return err
		}
		next := store.Record{Version: store.Version{Epoch: r.Epoch + 1, Token: storekit.NewToken()}, Blob: blob}
		if err := s.Swap(ctx, store.Process, fillingKey, r.Version, next); err != nil {
			return err
		}
	}
	if r.Epoch == 0 && len(changed) == 0 {
		return nil // there never was a list
	}
	_, err = s.Acknowledge(ctx, store.Process, fillingKey)
	return err
}

// fillingNames decodes the stored list of the data centres that do not have all rows yet. r and err are the results of
// reading the record with the list. If the record does not exist, the list is nil. Any other err is returned unchanged.
func fillingNames(r store.Record, err error) (names []string, _ error) {
	switch {
	case store.KindOf(err) == store.NotFound:
		return nil, nil
	case err != nil:
		return nil, err
	}
	if err := json.Unmarshal(r.Blob, &names); err != nil {
		return nil, store.Errorf(store.Corrupt, "the list of the data centres that are filling: %w", err)
	}
	return names, nil
}

// filling returns the names of the data centres with the mark "filling", which are new and do not have all rows yet. It
// reads in the local data centre only (Local).
func (s *database) filling(ctx context.Context) ([]string, error) {
	// That is enough: the local data centre has acknowledged each mark before the marked data centre got copies.
	return fillingNames(s.Read(ctx, store.Process, fillingKey, store.Local))
}

// checkFilled returns an InvalidArgument error if the data centre of this process has the mark "filling". The mark says
// that the data centre does not have all rows yet.
func (s *database) checkFilled(ctx context.Context) error {
	names, err := s.filling(ctx)
	if err == nil && slices.Contains(names, s.o.DataCentre) {
		err = store.Errorf(store.InvalidArgument, "the data centre %s has no complete copy of %s yet: run nodetool rebuild "+
			"on each of its nodes, then rebalancer schema filled %[1]s", s.o.DataCentre, s.o.Keyspace)
	}
	return err
}

// spread makes every replica know the newest record of every register, and returns the number of registers.
func (s *database) spread(ctx context.Context) (registers int, err error) {
	// It reads all registers at the consistency level ALL. Read repair is BLOCKING (Check demands it), so the
	// differences between replicas are repaired as soon as a page has been read.
	const page = 100 // registers: a root has at most some 100 KiB
	for _, t := range store.Tables() {
		statement := "SELECT epoch, swap_token, record FROM " + t.String()
		if t == store.Roots {
			statement += " PER PARTITION LIMIT 1"
		}
		rows := s.session.Query(statement).WithContext(ctx).Consistency(gocql.All).PageSize(page).Iter()
		var epoch *int64
		var token *gocql.UUID
		var record view
		for rows.Scan(&epoch, &token, &record) {
			registers++
		}
		if err := rows.Close(); err != nil {
			return registers, store.Errorf(kind(err), "read every copy of %s, which needs all nodes: %w", t, err)
		}
	}
	return registers, nil
}

// alterKeyspace returns the CQL statement that changes the number of copies of the keyspace in each data centre to r.
func alterKeyspace(keyspace string, r Replication) (string, error) {
	create, err := createKeyspace(keyspace, r)
	if err != nil {
		return "", err
	}
	rest, ok := strings.CutPrefix(strings.TrimSuffix(create, ";"), "CREATE KEYSPACE IF NOT EXISTS ")
	if !ok {
		return "", fmt.Errorf("%q creates no keyspace", create)
	}
	return "ALTER KEYSPACE " + rest, nil
}
