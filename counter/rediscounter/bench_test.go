package rediscounter

import (
	"bufio"
	"context"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/countbook"
	"github.com/evenkeel/evenkeel/internal/test/redistest"
	"github.com/evenkeel/evenkeel/store"
)

// rows is a partition of so many rows.
type rows int

func (n rows) Slice(
	_ context.Context, _ store.Partition, b store.Bounds, o store.SliceOptions,
) (page store.Page, err error) {
	at := 0
	if len(b.Start) > 0 {
		at, _ = strconv.Atoi(strings.TrimPrefix(string(b.Start), "photos/2024/"))
		at++
	}
	for ; at < int(n) && len(page.Rows) < o.Limit; at++ {
		page.Rows = append(page.Rows, store.Row{
			Key: fmt.Appendf(nil, "photos/2024/%08d", at), Value: store.EntryCell(make([]byte, 100)),
		})
	}
	page.More = at < int(n)
	return page, nil
}

// BenchmarkMerge merges a second of writes to 2,000 ranges of 100,000 rows each: one range per
// turn. It reports how many are merged per second, per second of a core that Redis is busy, and
// per second of a core that Redis and the client are busy; and for comparison as many bare HSET of
// 300 bytes in pipelines of 1,000.
func BenchmarkMerge(b *testing.B) {
	for _, puts := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("%d puts", puts), func(b *testing.B) { benchmarkMerge(b, puts) })
	}
}

func benchmarkMerge(b *testing.B, puts int) {
	server := redistest.Start(b)
	back, err := start(Options{Addr: server.Addr})
	require.NoError(b, err)
	defer back.Close()
	ctx := context.Background()
	require.NoError(b, back.c.ConfigSet(ctx, "appendonly", "no").Err())
	count, err := countbook.NewRecount(rows(100_000), store.Partition{}, store.Bounds{}, countbook.RecountOptions{}).Run(ctx)
	require.NoError(b, err)
	all := make([]store.Partition, 2_000)
	r := counter.NewRecorder(back, counter.RecorderOptions{Every: -1})
	for i := range all {
		all[i] = store.Partition{Bucket: store.BucketID{byte(i)}, ID: store.PartitionID(uuid.New())}
		require.NoError(b, back.Correct(ctx, all[i], count))
		r.Read(all[i], nil)
	}
	require.NoError(b, r.Flush(ctx)) // hints
	require.NoError(b, r.Flush(ctx))
	n := 0
	record := func() {
		for i := range all {
			for range puts {
				n++
				r.Put(all[i], fmt.Appendf(nil, "photos/2024/%08d", n*7919%100_000), 120, store.Timestamp(time.Now().UnixMicro()))
			}
		}
		require.NoError(b, r.Flush(ctx))
	}
	var took, redis, client time.Duration
	merged := 0
	for b.Loop() {
		if merged%len(all) == 0 {
			b.StopTimer()
			record()
			r0, c0, at := busy(b, back), self(b), time.Now()
			b.StartTimer()
			require.NoError(b, back.merge(ctx, &back.groups[0]))
			b.StopTimer()
			took, redis, client = took+time.Since(at), redis+busy(b, back)-r0, client+self(b)-c0
			b.StartTimer()
		}
		merged++
	}
	rounds := float64((merged + len(all) - 1) / len(all) * len(all))
	b.ReportMetric(rounds/took.Seconds(), "ranges/s")
	b.ReportMetric(rounds/redis.Seconds(), "ranges/s/redis-core")
	b.ReportMetric(rounds/(redis+client).Seconds(), "ranges/s/core")

	value, at := make([]byte, 300), time.Now()
	r0, c0 := busy(b, back), self(b)
	const sets = 100_000
	for i := 0; i < sets; {
		pipe := back.c.Pipeline()
		for range 1_000 {
			i++
			pipe.HSet(ctx, "bare:"+strconv.Itoa(i%len(all)), "f", value)
		}
		_, err := pipe.Exec(ctx)
		require.NoError(b, err)
	}
	bare := time.Since(at)
	b.ReportMetric(sets/bare.Seconds(), "HSET/s")
	b.ReportMetric(sets/(busy(b, back)-r0+self(b)-c0).Seconds(), "HSET/s/core")
}

// busy is the processor time of Redis.
func busy(b *testing.B, back *backend) (d time.Duration) {
	info, err := back.c.Info(context.Background(), "cpu").Result()
	require.NoError(b, err)
	for lines := bufio.NewScanner(strings.NewReader(info)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ":")
		if name == "used_cpu_sys" || name == "used_cpu_user" {
			s, err := strconv.ParseFloat(value, 64)
			require.NoError(b, err)
			d += time.Duration(s * float64(time.Second))
		}
	}
	return d
}

// self is the processor time of this process.
func self(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
