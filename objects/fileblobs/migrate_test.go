package fileblobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/store"
)

// ofBefore makes a place as servers of before left it, and opens it as they did.
func ofBefore(t *testing.T) (dir string, s *directory) {
	dir = t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, unfinished), 0o700))
	s, err := open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	require.False(t, s.HasMark())
	return dir, s
}

func put(ctx context.Context, s *directory, name string) error {
	return s.Create(ctx, name, strings.NewReader(name), int64(len(name)))
}

// flatFile writes a body where programs of before do, without waiting for the disk.
func flatFile(t *testing.T, s *directory, name string) {
	t.Helper()
	require.NoError(t, s.root.MkdirAll(filepath.Dir(name), 0o700))
	require.NoError(t, s.root.WriteFile(name, []byte(name), 0o600))
}

func get(ctx context.Context, s *directory, name string) error {
	body, _, err := s.Open(ctx, name, 0, int64(len(name)))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer body.Close()
	if text, err := io.ReadAll(body); err != nil || string(text) != name {
		return fmt.Errorf("%s has %q: %w", name, text, err)
	}
	return nil
}

func listed(ctx context.Context, s *directory, prefix string) (names []string, err error) {
	err = s.List(ctx, prefix, "", func(name string, _ int64) error {
		names = append(names, name)
		return nil
	})
	if err == nil && !slices.IsSorted(names) {
		err = errors.New("the listing is not in order")
	}
	return names, err
}

// notFlat fails where a bucket has something beside the folders of hashes.
func notFlat(t *testing.T, dir string) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "[a-z]*", "*"))
	require.NoError(t, err)
	for _, file := range all {
		require.True(t, isFan(filepath.Base(file)), file)
	}
}

// randomName returns the name of a body: some keys have several parts, with the same beginnings, and some versions are
// folders of parts.
func randomName(r *rand.Rand, bucket, who string, i int) string {
	name := bucket + "/" + []string{"", "LONG/", "LONG/ER/"}[r.IntN(3)] + fmt.Sprintf("%dK-/%s%d", r.IntN(12), who, i)
	if r.IntN(3) == 0 {
		name += "/00001-A"
	}
	return name
}

// Whatever servers read, write, delete and list, before and after they know of it, is as if nothing moved, and
// migrations that end anywhere leave nothing behind.
func TestMigrationsBesideServers(t *testing.T) {
	r := seed.New(t)
	defer func(n int) { mostMoved = n }(mostMoved)
	for range 10 {
		mostMoved = 1 + r.IntN(3)
		migrateOnce(t, r)
	}
}

func migrateOnce(t *testing.T, r *rand.Rand) {
	ctx := t.Context()
	dir, old := ofBefore(t)
	var stay, leave []string
	for i := range 24 {
		bucket := []string{"b", "b-"}[i%2]
		stay, leave = append(stay, randomName(r, bucket, "S", i)), append(leave, randomName(r, bucket, "G", i))
		flatFile(t, old, stay[i])
		flatFile(t, old, leave[i])
	}
	var done atomic.Bool
	var moving, beside errgroup.Group
	died := errors.New("killed")
	for range 2 {
		seed := r.Uint64()
		moving.Go(func() error {
			r := rand.New(rand.NewPCG(seed, 0))
			for {
				s, err := look(dir)
				if err != nil {
					return err
				}
				steps := r.IntN(20)
				err = s.Migrate(ctx, func(string, int64) error {
					if steps--; steps < 0 {
						return died
					}
					return nil
				})
				_ = s.Close()
				if !errors.Is(err, died) {
					return err
				}
			}
		})
	}
	// One server knows no mark before it writes, the other may see it at its start.
	server := func(do func(s *directory, r *rand.Rand) error) {
		seed := r.Uint64()
		beside.Go(func() error {
			r := rand.New(rand.NewPCG(seed, 0))
			for i := 0; i == 0 || !done.Load(); i++ {
				s, err := look(dir)
				if err != nil {
					return err
				}
				err = do([]*directory{old, s}[r.IntN(2)], r)
				_ = s.Close()
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	server(func(s *directory, r *rand.Rand) error {
		for range 40 {
			if err := get(ctx, s, stay[r.IntN(len(stay))]); err != nil {
				return err
			}
		}
		return nil
	})
	server(func(s *directory, r *rand.Rand) error {
		for _, prefix := range []string{"", "b/", "b-/", "b/LONG/"} {
			names, err := listed(ctx, s, prefix)
			if err != nil {
				return err
			}
			for _, name := range stay {
				if _, ok := slices.BinarySearch(names, name); !ok && strings.HasPrefix(name, prefix) {
					return fmt.Errorf("a listing of %q lacks %s", prefix, name)
				}
			}
		}
		return nil
	})
	n := 0
	server(func(s *directory, r *rand.Rand) error {
		if n++; n > len(leave) {
			return nil
		}
		name := leave[n-1]
		if err := s.Delete(ctx, name); err != nil {
			return err
		}
		if err := get(ctx, old, name); !errors.Is(err, store.NotFound) {
			return fmt.Errorf("%s is deleted: %w", name, err)
		}
		return nil
	})
	var written []string
	server(func(s *directory, r *rand.Rand) error {
		if len(written) > 100 {
			return nil
		}
		name := randomName(r, "b", "W", len(written))
		written = append(written, name)
		if err := put(ctx, s, name); err != nil {
			return fmt.Errorf("put %s: %w", name, err)
		}
		if err := get(ctx, old, name); err != nil {
			return err
		}
		if len(written)%3 > 0 {
			return nil
		}
		written = written[:len(written)-1]
		return s.Delete(ctx, name)
	})
	err := moving.Wait()
	done.Store(true)
	require.NoError(t, errors.Join(err, beside.Wait()))
	for ; n < len(leave); n++ {
		require.NoError(t, old.Delete(ctx, leave[n]))
	}
	s, err := open(dir)
	require.NoError(t, err)
	defer s.Close()
	require.True(t, s.HasMark())
	names, err := listed(ctx, s, "")
	require.NoError(t, err)
	require.Equal(t, slices.Sorted(slices.Values(append(written, stay...))), names)
	for _, name := range names {
		require.NoError(t, get(ctx, s, name))
	}
	notFlat(t, dir)
	left, err := os.ReadDir(filepath.Join(dir, writingFan))
	require.NoError(t, err)
	require.Empty(t, left)
}

// A move takes a moment: each of the calls meets it often enough here that one which looks in the wrong order, or once
// only, fails.
func TestABodyIsFoundAndDeletedWhileItMoves(t *testing.T) {
	ctx := t.Context()
	dir, old := ofBefore(t)
	require.NoError(t, old.root.Mkdir("b", 0o700))
	for i := range 150 {
		if i == 1 { // from here on new bodies fan out: so the flat place is filled by hand
			old = reopened(t, dir)
		}
		name := fmt.Sprintf("b/K%d-/01", i%7)
		flatFile(t, old, name)
		var beside errgroup.Group
		var done atomic.Bool
		beside.Go(func() error {
			defer done.Store(true)
			return old.Migrate(ctx, func(string, int64) error { return nil })
		})
		for !done.Load() && i%3 < 2 {
			if i%3 == 0 {
				require.NoError(t, get(ctx, old, name))
				continue
			}
			names, err := listed(ctx, old, "b/")
			require.NoError(t, err)
			require.Equal(t, []string{name}, names)
		}
		require.NoError(t, old.Delete(ctx, name))
		require.NoError(t, beside.Wait())
		require.ErrorIs(t, get(ctx, old, name), store.NotFound)
		names, err := listed(ctx, old, "")
		require.NoError(t, err)
		require.Empty(t, names)
	}
}

func reopened(t *testing.T, dir string) *directory {
	s, err := open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// A process that dies while it gives a place its mark leaves one that servers open, and the next one goes on. What was
// being written when the mark came fans out.
func TestTheMarkComesOnceWhoeverDies(t *testing.T) {
	for name, die := range map[string]func(root *os.Root) error{
		"before anything": func(*os.Root) error { return nil },
		"before the mark": func(root *os.Root) error { return root.Rename(unfinished, writingFan) },
		"before the mark, and a server has started since": func(root *os.Root) error {
			return errors.Join(root.Rename(unfinished, writingFan), root.Mkdir(unfinished, 0o700))
		},
		"before the mark, and a server writes since": func(root *os.Root) error {
			return errors.Join(root.Rename(unfinished, writingFan), root.Mkdir(unfinished, 0o700),
				root.WriteFile(unfinished+"/other", nil, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			dir, old := ofBefore(t)
			require.NoError(t, put(ctx, old, "b/K-/01"))
			r, w := io.Pipe()
			var writing errgroup.Group
			writing.Go(func() error { return old.Create(ctx, "b/K-/02", r, 7) })
			_, err := io.WriteString(w, "b/K-")
			require.NoError(t, err)
			require.NoError(t, die(old.root))
			s, err := look(dir)
			require.NoError(t, err)
			defer s.Close()
			require.NoError(t, s.Migrate(ctx, func(string, int64) error { return nil }))
			require.True(t, s.HasMark())
			_, err = io.WriteString(w, "/02")
			require.NoError(t, err)
			require.NoError(t, w.Close())
			require.NoError(t, writing.Wait())
			require.NoError(t, put(ctx, old, "b/K-/03"))
			require.Error(t, os.MkdirAll(filepath.Join(dir, unfinished), 0o700), "programs of before open it no more")
			for _, name := range []string{"b/K-/01", "b/K-/02", "b/K-/03"} {
				require.NoError(t, get(ctx, old, name))
			}
			notFlat(t, dir)
		})
	}
}

// A migration that is killed at any moment has lost nothing, and another one ends it.
func TestKilledMigrations(t *testing.T) {
	const variable = "EVENKEEL_KILLED_MIGRATION"
	each := func(string, int64) error { return nil }
	if dir := os.Getenv(variable); dir != "" { // in the process that is killed
		mostMoved = 5
		require.NoError(t, reopened(t, dir).Migrate(t.Context(), each))
		return
	}
	ctx, r := t.Context(), seed.New(t)
	for range 3 {
		dir, s := ofBefore(t)
		var names []string
		for i := range 300 {
			names = append(names, randomName(r, "b", "S", i))
			flatFile(t, s, names[i])
		}
		program, err := os.Executable()
		require.NoError(t, err)
		killed := exec.CommandContext(ctx, program, "-test.run=^TestKilledMigrations$")
		killed.Env = append(os.Environ(), variable+"="+dir)
		require.NoError(t, killed.Start())
		require.Eventually(t, func() bool { // it has begun, or may have ended
			_, err := os.Stat(filepath.Join(dir, mark))
			return err == nil && s.form() == nil && s.HasMark()
		}, time.Minute, time.Millisecond)
		time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
		require.NoError(t, killed.Process.Kill())
		_ = killed.Wait()
		slices.Sort(names)
		for range 2 {
			got, err := listed(ctx, s, "")
			require.NoError(t, err)
			require.Equal(t, names, got)
			require.NoError(t, get(ctx, s, names[r.IntN(len(names))]))
			require.NoError(t, s.Migrate(ctx, each))
		}
		notFlat(t, dir)
	}
}

// A server goes on where a migration died before it made the mark, and was not begun again.
func TestServersWriteBehindADeadMigration(t *testing.T) {
	ctx := t.Context()
	dir, old := ofBefore(t)
	require.NoError(t, old.root.Rename(unfinished, writingFan))
	require.NoError(t, put(ctx, old, "b/K-/01"))
	require.False(t, old.HasMark())
	s, err := look(dir)
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.Migrate(ctx, func(string, int64) error { return nil }))
	require.NoError(t, put(ctx, old, "b/K-/02"))
	notFlat(t, dir)
}

// Of keys that begin alike one folder has all: a migration tells of some at a time, and ends there when it shall.
func TestMigrationsOfKeysThatBeginAlike(t *testing.T) {
	defer func(n int) { mostMoved = n }(mostMoved)
	mostMoved = 5
	dir, s := ofBefore(t)
	const keys = 42
	for i := range keys {
		flatFile(t, s, fmt.Sprintf("b/LONG/ER/%dK-/01", i))
	}
	ctx, stop := context.WithCancel(t.Context())
	require.ErrorIs(t, s.Migrate(ctx, func(_ string, moved int64) error {
		require.EqualValues(t, mostMoved, moved)
		stop()
		return nil
	}), context.Canceled)
	left, err := os.ReadDir(filepath.Join(dir, "b/LONG/ER"))
	require.NoError(t, err)
	require.Len(t, left, keys-mostMoved)
	sum := int64(0)
	require.NoError(t, s.Migrate(t.Context(), func(_ string, moved int64) error {
		require.LessOrEqual(t, moved, int64(mostMoved))
		sum += moved
		return nil
	}))
	require.EqualValues(t, keys-mostMoved, sum)
	notFlat(t, dir)
}

// A server that has only read since before the mark sorts long listings in the place, as before.
func TestLongListingsBehindTheMark(t *testing.T) {
	defer func(n int) { mostNames = n }(mostNames)
	mostNames = 3
	ctx := t.Context()
	dir, old := ofBefore(t)
	for i := range 10 {
		flatFile(t, old, fmt.Sprintf("b/K-/%02d", i))
	}
	s, err := look(dir)
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.Migrate(ctx, func(string, int64) error { return nil }))
	t.Setenv("TMPDIR", filepath.Join(dir, "none"))
	names, err := listed(ctx, old, "")
	require.NoError(t, err)
	require.Len(t, names, 10)
}

// BenchmarkMigration moves 2,000 keys, or MIGRATED_KEYS, of one body each.
func BenchmarkMigration(b *testing.B) {
	keys := 2000
	if text := os.Getenv("MIGRATED_KEYS"); text != "" {
		var err error
		keys, err = strconv.Atoi(text)
		require.NoError(b, err)
	}
	for b.Loop() {
		b.StopTimer()
		dir := b.TempDir()
		for i := range keys {
			folder := filepath.Join(dir, "b", fmt.Sprintf("KEY%08d-", i))
			require.NoError(b, os.MkdirAll(folder, 0o700))
			require.NoError(b, os.WriteFile(filepath.Join(folder, "01"), []byte("a small body"), 0o600))
		}
		s, err := look(dir)
		require.NoError(b, err)
		b.StartTimer()
		require.NoError(b, s.Migrate(b.Context(), func(string, int64) error { return nil }))
		require.NoError(b, s.Close())
	}
	b.ReportMetric(float64(keys*b.N)/b.Elapsed().Seconds(), "keys/s")
}
