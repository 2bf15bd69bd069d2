package cassandrastore

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/gocql/gocql"

	"github.com/evenkeel/evenkeel/internal/cqltable"
	"github.com/evenkeel/evenkeel/store"
)

// init sets cqltable.Open, since package cqltable can't import this package.
func init() {
	cqltable.Open = func(ctx context.Context, options any, names ...string) ([]cqltable.Table, error) {
		return openTables(ctx, options.(Options), names)
	}
}

// appTable is a Cassandra table of another application. It implements cqltable.Table.
type appTable struct {
	name    string // "keyspace"."table", for CQL
	columns cqltable.Columns

	session *gocql.Session
	s       database // the owner of the retries
}

// openTables connects to a cluster, and returns the named tables of other applications. It implements cqltable.Open.
func openTables(ctx context.Context, o Options, names []string) ([]cqltable.Table, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	auth, err := o.authenticator()
	if err != nil {
		return nil, err
	}
	session, err := o.session(ctx, nil, auth, o.DataCentre, "", nearConnections)
	if err != nil {
		return nil, fail(ctx, err, "open", strings.Join(names, ", "))
	}
	var all []cqltable.Table
	for _, name := range names {
		keyspace, table, _ := strings.Cut(name, ".")
		t := &appTable{name: name, session: session, s: database{o: o}}
		if err := t.describe(ctx, keyspace, table); err != nil {
			session.Close()
			return nil, err
		}
		all = append(all, t)
	}
	return all, nil
}

// Columns returns the columns of the table.
func (t *appTable) Columns() cqltable.Columns { return t.columns }

// Close closes the connection of all tables that were opened together.
func (t *appTable) Close() { t.session.Close() }

// describe reads the columns of the table from Cassandra's schema. It fails with NotFound if the table does not exist.
func (t *appTable) describe(ctx context.Context, keyspace, table string) error {
	iter := t.session.Query("SELECT column_name, type, kind, position, clustering_order FROM system_schema.columns "+
		"WHERE keyspace_name = ? AND table_name = ?", keyspace, table).WithContext(ctx).Consistency(gocql.LocalOne).Iter()
	type positioned struct {
		cqltable.Column
		at int
	}
	var all []positioned
	var c positioned
	var order string
	for iter.Scan(&c.Name, &c.Type, &c.Kind, &c.at, &order) {
		c.Desc = order == "desc"
		all = append(all, c)
	}
	if err := iter.Close(); err != nil {
		return fail(ctx, err, "read the schema of", t.name)
	}
	if len(all) == 0 {
		return store.Errorf(store.NotFound, "there is no table %s (names in lower case, unless they were made with quotes)",
			t.name)
	}
	slices.SortStableFunc(all, func(a, b positioned) int { return cmp.Compare(a.at, b.at) })
	for _, c := range all {
		switch c.Kind {
		case cqltable.PartitionKey:
			t.columns.Partition = append(t.columns.Partition, c.Column)
		case cqltable.Clustering:
			t.columns.Clustering = append(t.columns.Clustering, c.Column)
		default:
			t.columns.Others = append(t.columns.Others, c.Column)
		}
	}
	t.name = quoted(keyspace) + "." + quoted(table)
	return nil
}

// places returns the two ends of the interval of rows for which the query q asks: low before the first row, and high
// behind the last row. The order is the ascending one, even if the query reads in descending order.
func places(q *cqltable.Query) (low, high place) {
	low, high = place{q.From, q.FromExclusive}, place{q.To, q.ToInclusive}
	if q.Desc {
		low, high = place{q.To, !q.ToInclusive}, place{q.From, !q.FromExclusive}
	}
	return low, high
}

// statement returns the CQL statement that reads the rows of the query q between low and high, which are positions
// between rows. args are the values for the statement.
func (t *appTable) statement(q *cqltable.Query, low, high place) (cql string, args []any) {
	var columns, where, order []string
	for _, c := range t.columns.Clustering {
		columns = append(columns, quoted(c.Name))
		order = append(order, quoted(c.Name)+map[bool]string{false: " ASC", true: " DESC"}[q.Desc])
	}
	names := columns
	for _, v := range q.Values {
		v = quoted(v)
		if q.AsJSON {
			columns = append(columns, "toJson("+v+")")
		} else {
			columns = append(columns, v)
		}
		columns = append(columns, "WRITETIME("+v+")", "TTL("+v+")")
	}
	for i, c := range t.columns.Partition {
		where, args = append(where, quoted(c.Name)+" = ?"), append(args, (*wireBlob)(&q.Partition[i]))
	}
	bound := func(comparison string, values [][]byte) {
		if len(values) == 0 {
			return
		}
		where = append(where, fmt.Sprintf("(%s) %s (?%s)", strings.Join(names[:len(values)], ", "), comparison,
			strings.Repeat(", ?", len(values)-1)))
		for i := range values {
			args = append(args, (*wireBlob)(&values[i]))
		}
	}
	bound(map[bool]string{false: ">=", true: ">"}[low.after], low.values)
	bound(map[bool]string{false: "<", true: "<="}[high.after], high.values)
	cql = "SELECT " + strings.Join(columns, ", ") + " FROM " + t.name + " WHERE " + strings.Join(where, " AND ")
	if q.Desc != q.TableDesc {
		cql += " ORDER BY " + strings.Join(order, ", ")
	}
	return cql + " LIMIT ?", append(args, q.Limit)
}

// Read returns the rows for which the query q asks. It implements cqltable.Rows.
func (t *appTable) Read(ctx context.Context, q cqltable.Query) ([]cqltable.Row, error) {
	// With less than a quorum of each data centre, a row could seem to be deleted that was acknowledged in another data
	// centre, and that may already have been copied to evenkeel's keyspace.
	low, high := places(&q)
	rows, err := t.between(ctx, q, low, high)
	return rows, t.fail(ctx, err, "read")
}

// between returns the rows of the query q between the positions low and high. If replicas refuse the read, since it
// meets too many tombstones, between reads the two halves.
func (t *appTable) between(ctx context.Context, q cqltable.Query, low, high place) ([]cqltable.Row, error) {
	cql, args := t.statement(&q, low, high)
	r := request{op: opTable, level: gocql.EachQuorum, limit: t.s.o.ReadTimeout}
	rows, err := retry(ctx, &t.s, r, func(ctx context.Context) ([]cqltable.Row, error) {
		iter := t.session.Query(cql, args...).WithContext(ctx).Consistency(gocql.EachQuorum).Iter()
		rows := t.scan(iter, &q)
		return rows, iter.Close()
	})
	if !readFailed(err) {
		return rows, err
	}
	cut, ok := halveRows(t.columns.Clustering, low, high)
	if !ok {
		return nil, err
	}
	parts := [][2]place{{low, cut}, {cut, high}}
	if q.Desc {
		slices.Reverse(parts)
	}
	rows = nil
	for _, part := range parts {
		more, err := t.between(ctx, q, part[0], part[1])
		if err != nil {
			return nil, err
		}
		if rows = append(rows, more...); len(more) >= q.Limit {
			break
		}
		q.Limit -= len(more)
	}
	return rows, nil
}

// fail returns err, the error of a read or write of the table, with the name op of the operation. The kind
// InvalidArgument means that the server refuses the request by its rules, now and later.
func (t *appTable) fail(ctx context.Context, err error, op string) error {
	switch c, _ := code(err); c {
	case gocql.ErrCodeInvalid, gocql.ErrCodeSyntax, gocql.ErrCodeConfig:
		err = store.Errorf(store.InvalidArgument, "%w", err)
	}
	return fail(ctx, err, op, t.name)
}

// Write writes changes of rows in one partition. It implements cqltable.Rows.
func (t *appTable) Write(
	ctx context.Context, partition [][]byte, values []string, asJSON bool, changes []cqltable.Change,
) error {
	var columns, marks, where []string
	for _, c := range slices.Concat(t.columns.Partition, t.columns.Clustering) {
		columns, marks = append(columns, quoted(c.Name)), append(marks, "?")
		where = append(where, quoted(c.Name)+" = ?")
	}
	for _, v := range values {
		columns = append(columns, quoted(v))
		if asJSON {
			marks = append(marks, "fromJson(?)")
		} else {
			marks = append(marks, "?")
		}
	}
	insert := "INSERT INTO " + t.name + " (" + strings.Join(columns, ", ") + ") VALUES (" + strings.Join(marks, ", ") +
		") USING TIMESTAMP ?"
	remove := "DELETE FROM " + t.name + " USING TIMESTAMP ? WHERE " + strings.Join(where, " AND ")
	entries := make([]gocql.BatchEntry, len(changes))
	for i := range changes {
		c := &changes[i]
		var args []any
		for _, wires := range [][][]byte{partition, c.Clustering, c.Values} {
			for j := range wires {
				args = append(args, (*wireBlob)(&wires[j]))
			}
		}
		if c.Delete {
			entries[i] = gocql.BatchEntry{Stmt: remove, Args: append([]any{int64(c.At)}, args...)}
		} else {
			entries[i] = gocql.BatchEntry{Stmt: insert, Args: append(args, int64(c.At))}
		}
	}
	r := request{op: opTable, level: gocql.EachQuorum, limit: t.s.o.WriteTimeout}
	_, err := retry(ctx, &t.s, r, func(ctx context.Context) (struct{}, error) {
		b := t.session.NewBatch(gocql.UnloggedBatch).WithContext(ctx)
		b.SetConsistency(gocql.EachQuorum)
		b.Entries = entries
		return struct{}{}, t.session.ExecuteBatch(b)
	})
	return t.fail(ctx, err, "write")
}

// scan returns the rows in iter, the answer to the query q.
func (t *appTable) scan(iter *gocql.Iter, q *cqltable.Query) []cqltable.Row {
	const perValue = 3
	rows := make([]cqltable.Row, 0, iter.NumRows())
	n := len(t.columns.Clustering)
	got := make([]view, n+perValue*len(q.Values))
	dest := make([]any, len(got))
	for i := range got {
		dest[i] = &got[i]
	}
	for iter.Scan(dest...) {
		columns := make([][]byte, n+len(q.Values))
		row := cqltable.Row{Clustering: columns[:n:n], Values: columns[n:]}
		for i := range n {
			columns[i] = got[i]
		}
		for i := range q.Values {
			v := got[n+perValue*i:]
			columns[n+i] = v[0]
			if len(v[1]) == 8 {
				row.WriteTime = max(row.WriteTime, store.Timestamp(binary.BigEndian.Uint64(v[1])))
			}
			row.Expires = row.Expires || v[2] != nil
		}
		rows = append(rows, row)
	}
	return rows
}

// quoted returns the name of a table or column in double quotes for CQL, so that Cassandra distinguishes capitals.
func quoted(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
