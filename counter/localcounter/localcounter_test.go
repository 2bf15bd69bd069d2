package localcounter

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/test/countertest"
	"github.com/evenkeel/evenkeel/store"
)

func TestConformance(t *testing.T) {
	for name, slack := range map[string]int64{"usual": compactBytes, "compacting": 1} {
		t.Run(name, func(t *testing.T) {
			countertest.Run(t, func(t *testing.T, clock *countertest.Clock) *countertest.Env {
				dir := t.TempDir()
				var last *backend
				return &countertest.Env{
					Open: func(t *testing.T) counter.Backend {
						if last != nil && !last.closed {
							require.NoError(t, last.Close())
						}
						var err error
						last, err = start(dir, Options{now: clock.Now, noSync: true})
						require.NoError(t, err)
						last.slack = slack
						return last
					},
					Crash: func(t *testing.T) { // what was written is there, and nothing else
						data, err := os.ReadFile(filepath.Join(dir, fileName))
						require.NoError(t, err)
						require.NoError(t, last.Close())
						require.NoError(t, os.WriteFile(filepath.Join(dir, fileName), data, 0o644))
					},
					Lose: func(t *testing.T) {
						require.NoError(t, last.Close())
						require.NoError(t, os.Remove(filepath.Join(dir, fileName)))
					},
				}
			})
		})
	}
}

func open(t *testing.T, dir string) *backend {
	b, err := start(dir, Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// A file cut off or damaged anywhere opens, keeps what came before, and claims to
// know nothing.
func TestDamage(t *testing.T) {
	dir := t.TempDir()
	p := store.Partition{Bucket: store.BucketID{1}, ID: store.PartitionID(uuid.New())}
	b := open(t, dir)
	ctx := context.Background()
	require.NoError(t, b.Correct(ctx, p, &counter.Count{Started: time.Now(), Rows: 5}))
	r := counter.NewRecorder(b, counter.RecorderOptions{Every: -1})
	for i := range 20 {
		r.Put(p, []byte{byte(i)}, 10, store.Timestamp(time.Now().UnixMicro()))
		require.NoError(t, r.Flush(ctx))
	}
	require.NoError(t, b.Close())
	whole, err := os.ReadFile(filepath.Join(dir, fileName))
	require.NoError(t, err)
	for i := 1; i < len(whole); i += 7 {
		for _, cut := range []bool{true, false} {
			data := append([]byte(nil), whole...)
			if cut {
				data = data[:i]
			} else {
				data[i] ^= 0x40
			}
			require.NoError(t, os.WriteFile(filepath.Join(dir, fileName), data, 0o644))
			b, err := start(dir, Options{})
			require.NoError(t, err)
			all, err := b.Stats(ctx, []store.Partition{p})
			require.NoError(t, err)
			if all[0].Known { // cut off between two frames: the crash of an instant earlier
				require.True(t, cut)
				require.LessOrEqual(t, all[0].Rows, int64(25))
			}
			require.NoError(t, b.Close())
		}
	}
}

func TestANewerFormIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	require.NoError(t, b.append([]byte{'?', 1, 2, 3}))
	require.NoError(t, b.Close())
	before, err := os.ReadFile(filepath.Join(dir, fileName))
	require.NoError(t, err)
	_, err = start(dir, Options{})
	require.ErrorIs(t, err, store.InvalidArgument)
	after, err := os.ReadFile(filepath.Join(dir, fileName))
	require.NoError(t, err)
	require.Equal(t, before, after)
}

func TestOneProcessAtATime(t *testing.T) {
	dir := t.TempDir()
	open(t, dir)
	_, err := start(dir, Options{})
	require.ErrorIs(t, err, store.Unavailable)
}

// The file does not grow for ever.
func TestTheFileIsRewritten(t *testing.T) {
	dir := t.TempDir()
	b, err := start(dir, Options{noSync: true})
	require.NoError(t, err)
	b.slack = 64 << 10
	defer b.Close()
	p := store.Partition{Bucket: store.BucketID{1}, ID: store.PartitionID(uuid.New())}
	r := counter.NewRecorder(b, counter.RecorderOptions{Every: -1})
	for i := range 5000 {
		r.Put(p, []byte{byte(i), byte(i >> 8)}, 10, store.Timestamp(i+1))
		require.NoError(t, r.Flush(context.Background()))
	}
	info, err := os.Stat(filepath.Join(dir, fileName))
	require.NoError(t, err)
	require.Less(t, info.Size(), int64(300<<10))
}

// A disk that does not take a frame leaves no half of one behind.
func TestAFailedWriteIsTakenBack(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	p := store.Partition{Bucket: store.BucketID{1}, ID: store.PartitionID(uuid.New())}
	r := counter.NewRecorder(b, counter.RecorderOptions{Every: -1})
	put := func(k string) error {
		r.Put(p, []byte(k), 10, store.Timestamp(time.Now().UnixMicro()))
		return r.Flush(context.Background())
	}
	require.NoError(t, put("a"))
	require.NoError(t, b.file.Close()) // now every write fails
	require.Error(t, put("b"))
	require.NoError(t, put("c"), "the file is written anew")
	require.NoError(t, put("d"))
	require.NoError(t, b.Close())
	b = open(t, dir)
	all, err := b.Stats(context.Background(), []store.Partition{p})
	require.NoError(t, err)
	require.Equal(t, int64(4), all[0].Puts)
}
