package cassandrastore

import (
	"context"
	"math"
	"time"

	"github.com/gocql/gocql"

	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/store"
)

// A register has three columns: its epoch, the token of its last swap, and its record, which begins with both. The
// repetition detects torn records. If another program reads only some of the columns, its read repair may leave a
// replica with the new epoch beside the old record. This package always selects all columns.
//
// A root keeps its records as rows of one partition, the newest first, beside static columns for the epoch and the
// token. A swap changes the static columns and adds a row in one conditional batch, which is one mutation. So a swap
// writes one record only: the record that it replaces is already there.

// Read returns the record with the given key in table t, at the consistency level l. It fails with NotFound if there is
// no record, and with Unavailable if the record is torn: its columns come from different swaps. A read at the level
// Serial repairs a torn record. It implements store.Registers.
func (s *database) Read(ctx context.Context, t store.Table, key []byte, l store.Level) (store.Record, error) {
	if err := storekit.CheckRegister(t, key); err != nil {
		return store.Record{}, err
	}
	level := s.levels.readRegisters
	if l == store.Serial {
		level = gocql.Consistency(gocql.Serial)
	}
	r, err := s.readRegister(ctx, s.session, t, key, level)
	return r, s.fail(ctx, err, "read", storekit.RegisterName{Table: t, Key: key})
}

// readRegister reads the record with the given key in table t, through the given session and at the given consistency
// level. It fails with NotFound if there is no record, and with Unavailable if the record is torn.
func (s *database) readRegister(
	ctx context.Context, session *gocql.Session, t store.Table, key []byte, level gocql.Consistency,
) (r store.Record, err error) {
	statement := "SELECT epoch, swap_token, record FROM " + t.String() + " WHERE key = ?"
	if t == store.Roots {
		statement += " LIMIT 1"
	}
	type columns struct {
		found  bool
		epoch  *int64
		token  *gocql.UUID
		record view
	}
	request := request{op: opReadRegister, level: level, limit: s.o.ReadTimeout, far: session != s.session}
	c, err := retry(ctx, s, request, func(ctx context.Context) (c columns, err error) {
		iter := session.Query(statement, key).WithContext(ctx).Consistency(level).Iter()
		c.found = iter.Scan(&c.epoch, &c.token, &c.record)
		return c, iter.Close()
	})
	switch {
	case err != nil:
		return store.Record{}, err
	case !c.found:
		return store.Record{}, store.NotFound
	}
	r, ok := storekit.DecodeRecord(c.record)
	if !ok || c.epoch == nil || c.token == nil || uint64(*c.epoch) != r.Epoch || store.Token(*c.token) != r.Token {
		return store.Record{}, store.Errorf(
			store.Unavailable, "the record is torn (its columns are of different swaps): read it again",
		)
	}
	return r, nil
}

// Swap replaces the record with the given key in table t by next, if the record is at the version old. It runs one
// lightweight transaction of Cassandra, and does not repeat the transaction after an error. It implements
// store.Registers.
func (s *database) Swap(ctx context.Context, t store.Table, key []byte, old store.Version, next store.Record) error {
	err := storekit.CheckRecord(t, key, old, next)
	if err == nil && next.Epoch > math.MaxInt64 {
		err = store.Errorf(store.InvalidArgument, "there is no epoch after %d", old.Epoch)
	}
	if err == nil {
		err = s.usable(ctx)
	}
	if err == nil {
		err = s.swap(ctx, t, key, old, next)
	}
	return s.fail(ctx, err, "swap", storekit.RegisterName{Table: t, Key: key})
}

// swap replaces the record with the given key in table t by next, if the record is at the version old. The caller has
// checked the arguments.
func (s *database) swap(ctx context.Context, t store.Table, key []byte, old store.Version, next store.Record) error {
	name := t.String()
	epoch, token, record := int64(next.Epoch), gocql.UUID(next.Token), storekit.AppendRecord(nil, next)
	var statements []gocql.BatchEntry
	add := func(statement string, args ...any) {
		statements = append(statements, gocql.BatchEntry{Stmt: statement, Args: args})
	}
	created := old == store.Version{}
	switch {
	case t == store.Roots:
		if created {
			add("INSERT INTO roots (key, epoch, swap_token) VALUES (?, ?, ?) IF NOT EXISTS", key, epoch, token)
		} else {
			add(
				"UPDATE roots SET epoch = ?, swap_token = ? WHERE key = ? IF epoch = ? AND swap_token = ?", epoch, token, key,
				int64(old.Epoch), gocql.UUID(old.Token),
			)
		}
		add("INSERT INTO roots (key, at, record) VALUES (?, ?, ?)", key, epoch, record)
	case created:
		add(
			"INSERT INTO "+name+" (key, epoch, swap_token, record) VALUES (?, ?, ?, ?) IF NOT EXISTS", key, epoch, token, record,
		)
	default:
		add(
			"UPDATE "+name+" SET epoch = ?, swap_token = ?, record = ? WHERE key = ? IF epoch = ? AND swap_token = ?", epoch,
			token, record, key, int64(old.Epoch), gocql.UUID(old.Token),
		)
	}
	present, err := s.transact(ctx, statements)
	if err == nil && present != nil {
		return store.Errorf(store.Conflict, "the register is at epoch %d, not %d", present.Epoch, old.Epoch)
	}
	return err
}

// transact runs conditional statements on one partition as one lightweight transaction. The results are:
//   - present and err are nil: the transaction was applied.
//   - present is not nil: the condition did not hold, and the transaction is certainly not applied. present is the
//     version that was found instead (zero if there is none).
//   - err is not nil: the outcome is unknown.
func (s *database) transact(ctx context.Context, statements []gocql.BatchEntry) (present *store.Version, err error) {
	// A refused condition is certain, since a coordinator repeats only a transaction that every replica has refused. An
	// error makes the outcome unknown even if the answer states an outcome.
	begun := time.Now()
	defer func(ctx context.Context) {
		s.measures.ended(ctx, opSwap, gocql.Consistency(gocql.Serial), time.Since(begun), err)
	}(ctx)
	ctx, cancel := context.WithTimeout(ctx, s.o.SwapTimeout)
	defer cancel()
	found := map[string]any{}
	var iter *gocql.Iter
	applied := false
	if len(statements) == 1 {
		// The columns of the answer depend on the outcome, so the columns of the prepared statement may be wrong.
		iter = s.session.Query(statements[0].Stmt, statements[0].Args...).WithContext(ctx).NoSkipMetadata().
			Consistency(s.levels.commitSwaps).SerialConsistency(gocql.Serial).Iter()
		if iter.MapScan(found) {
			answered := false
			if applied, answered = found["[applied]"].(bool); !answered {
				err = store.Errorf(store.Unavailable, "the answer does not say whether the swap was applied")
			}
		}
	} else {
		b := s.session.NewBatch(gocql.UnloggedBatch).WithContext(ctx)
		b.SetConsistency(s.levels.commitSwaps)
		b.SerialConsistency(gocql.Serial)
		b.Entries = statements
		applied, iter, err = s.session.MapExecuteBatchCAS(b, found)
	}
	if iter != nil {
		if closeErr := iter.Close(); err == nil {
			err = closeErr
		}
	}
	if err != nil || applied {
		return nil, err
	}
	v := store.Version{}
	if epoch, ok := found["epoch"].(int64); ok {
		v.Epoch = uint64(epoch)
	}
	if token, ok := found["swap_token"].(gocql.UUID); ok {
		v.Token = store.Token(token)
	}
	return &v, nil
}

// History returns up to limit earlier records of the root of the bucket with the given id, newest first, with epochs
// below before (0: all epochs). The records are in one Cassandra partition with the present record, which is left out.
// It implements store.Registers.
func (s *database) History(
	ctx context.Context, id store.BucketID, before uint64, limit int,
) (records []store.Record, err error) {
	defer func() { err = s.fail(ctx, err, "history", id) }()
	if err := storekit.CheckLimit(limit); err != nil {
		return nil, err
	}
	statement, values := "SELECT epoch, at, record FROM roots WHERE key = ? LIMIT ?", []any{id[:], limit + 1}
	if before > 0 && before <= math.MaxInt64 {
		statement = "SELECT epoch, at, record FROM roots WHERE key = ? AND at < ? LIMIT ?"
		values = []any{id[:], int64(before), limit + 1}
	}
	level := s.levels.readRegisters
	r := request{op: opReadRegister, level: level, limit: s.o.ReadTimeout}
	return retry(ctx, s, r, func(ctx context.Context) (records []store.Record, err error) {
		iter := s.session.Query(statement, values...).WithContext(ctx).Consistency(level).Iter()
		var epoch, at *int64
		var record view
		for len(records) < limit && iter.Scan(&epoch, &at, &record) {
			if epoch == nil || at == nil || *at >= *epoch {
				continue // the present record
			}
			r, ok := storekit.DecodeRecord(record)
			if !ok || r.Epoch != uint64(*at) {
				return nil, store.Errorf(store.Corrupt, "the record that was replaced at epoch %d is damaged", *at)
			}
			records = append(records, r)
		}
		return records, iter.Close()
	})
}

// Forget deletes old records of the root of the bucket with the given id: those with epochs (versions) below before. It
// implements store.Registers.
func (s *database) Forget(ctx context.Context, id store.BucketID, before uint64) (err error) {
	// It uses a lightweight transaction, since rows that lightweight transactions write must not be written in another
	// way.
	defer func() { err = s.fail(ctx, err, "forget", id) }()
	for {
		now, err := s.readRegister(ctx, s.session, store.Roots, id[:], gocql.Consistency(gocql.Serial))
		if store.KindOf(err) == store.NotFound {
			return nil
		}
		if err != nil {
			return err
		}
		epoch, token := int64(now.Epoch), gocql.UUID(now.Token)
		present, err := s.transact(ctx, []gocql.BatchEntry{
			{
				Stmt: "UPDATE roots SET epoch = ?, swap_token = ? WHERE key = ? IF epoch = ? AND swap_token = ?",
				Args: []any{epoch, token, id[:], epoch, token},
			},
			{Stmt: "DELETE FROM roots WHERE key = ? AND at < ?", Args: []any{id[:], int64(min(before, now.Epoch))}},
		})
		if err != nil || present == nil {
			return err
		}
	}
}
