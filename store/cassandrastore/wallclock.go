package cassandrastore

import (
	"context"
	"time"

	"github.com/gocql/gocql"
)

// Time asks a coordinator for its time of day. The driver takes another one of
// the local data centre each time, since the statement has no partition. The
// answer is in whole milliseconds.
func (s *Store) Time(ctx context.Context) (t time.Time, server string, err error) {
	if err := s.usable(ctx); err != nil {
		return time.Time{}, "", s.fail(ctx, err, "ask for", text("the time"))
	}
	iter := s.session.Query("SELECT to_unix_timestamp(now()) FROM system.local").WithContext(ctx).Consistency(gocql.One).Iter()
	var millis int64
	found := iter.Scan(&millis)
	if host := iter.Host(); host != nil {
		server = host.HostnameAndPort()
	}
	err = iter.Close()
	if err == nil && !found {
		err = gocql.ErrNotFound
	}
	return time.UnixMilli(millis), server, s.fail(ctx, err, "ask for", text("the time"))
}
