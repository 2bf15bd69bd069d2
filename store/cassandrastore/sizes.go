package cassandrastore

import (
	"context"
	"time"

	"github.com/gocql/gocql"

	"github.com/evenkeel/evenkeel/store"
)

// KeepSize stores the measured size of a partition. It implements countbook.Keeper.
func (s *database) KeepSize(ctx context.Context, size store.PartitionSize) error {
	// The time of the measurement is the timestamp of the write, so that the newest size stays. A size that arrives
	// after ForgetSize is garbage of some hundred bytes.
	p := size.Partition
	err := s.exec(ctx, opWriteSize, s.levels.writeRows,
		"INSERT INTO sizes (bucket, partition, size) VALUES (?, ?, ?) USING TIMESTAMP ?",
		gocql.UUID(p.Bucket), gocql.UUID(p.ID), size.Encoded, size.At.UnixMicro())
	return s.fail(ctx, err, "keep the size of", p)
}

// KeptSize returns the stored size of the partition p. If none is stored, Encoded is nil. It implements
// countbook.Keeper.
func (s *database) KeptSize(ctx context.Context, p store.Partition) (store.PartitionSize, error) {
	level := s.levels.readRows
	r := request{op: opReadSize, level: level, limit: s.o.ReadTimeout}
	b, err := retry(ctx, s, r, func(ctx context.Context) (b []byte, err error) {
		iter := s.session.Query("SELECT size FROM sizes WHERE bucket = ? AND partition = ?",
			gocql.UUID(p.Bucket), gocql.UUID(p.ID)).WithContext(ctx).Consistency(level).Iter()
		iter.Scan(&b)
		return b, iter.Close()
	})
	return store.PartitionSize{Partition: p, Encoded: b}, s.fail(ctx, err, "read the kept size of", p)
}

// ForgetSize deletes the stored size of the partition p. It implements countbook.Keeper.
func (s *database) ForgetSize(ctx context.Context, p store.Partition) error {
	err := s.exec(ctx, opWriteSize, s.levels.writeRows,
		"DELETE FROM sizes USING TIMESTAMP ? WHERE bucket = ? AND partition = ?",
		time.Now().UnixMicro(), gocql.UUID(p.Bucket), gocql.UUID(p.ID))
	return s.fail(ctx, err, "forget the size of", p)
}
