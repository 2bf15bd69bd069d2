package objects_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/test/listtest"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

var daily = objects.Lifecycle{
	{ID: "others", Days: 1000}, {ID: "logs", Prefix: "logs/", Days: 30}, {ID: "off", Days: 1, Disabled: true},
}

func TestObjectsExpire(t *testing.T) {
	for _, v := range []objects.Status{objects.Enabled, objects.Never} {
		ctx, b := t.Context(), newPlace(t, memstore.New(), v)
		put := func(key, body string) objects.Info {
			info, err := b.Put(ctx, []byte(key), strings.NewReader(body), objects.Meta{Size: -1})
			require.NoError(t, err)
			return info
		}
		gone := func(key string) bool {
			_, err := b.Head(ctx, []byte(key), objects.Latest)
			if err != nil {
				require.ErrorIs(t, err, store.NotFound)
			}
			return err != nil
		}
		require.NoError(t, b.o.SetLifecycle(ctx, "objects", daily))
		one, two := b.cleaner(t, care.CleanOptions{}), b.cleaner(t, care.CleanOptions{})
		clean := func(expired int64) {
			for i, c := range []care.Cleaner{one, two} {
				done, err := c.Pass(ctx)
				require.NoError(t, err)
				require.NoError(t, done.FirstFailure)
				if i == 0 {
					require.Equal(t, expired, done.Expired)
				} else {
					require.Zero(t, done.Expired)
				}
			}
		}
		put("logs/a", "the first")
		put("logs/a", "the second, which is not inline")
		put("logs/b", "b")
		put("keep/a", "kept")
		put("other", "other")
		b.now = b.now.Add(29 * 24 * time.Hour)
		put("logs/b", "younger")
		clean(0)
		b.now = b.now.Add(49 * time.Hour) // beyond the midnight, too
		dry := care.CleanOptions{}
		var deeds []care.Deed
		dry.Before = func(d care.Deed) bool { deeds = append(deeds, d); return false }
		dry.Pacer = wait.NewPacer(1_000_000)
		_, err := b.cleaner(t, dry).Pass(ctx)
		require.NoError(t, err)
		require.False(t, gone("logs/a"), "nothing was done")
		require.True(t, slices.ContainsFunc(deeds, func(d care.Deed) bool {
			return d.Do == "expire" && string(d.Key) == "logs/a" && d.Why == "it is older than a rule allows"
		}), "%+v", deeds)
		clean(1)
		require.True(t, gone("logs/a"))
		for _, key := range []string{"logs/b", "keep/a", "other"} {
			require.False(t, gone(key), key)
		}
		clean(0)
		put("logs/a", "the third")
		require.False(t, gone("logs/a"), "what came later is not hidden")
		versions, err := b.ListVersions(ctx, objects.Query{Prefix: []byte("logs/a")})
		require.NoError(t, err)
		if v == objects.Never {
			require.Len(t, versions.Items, 1)
			continue
		}
		require.Len(t, versions.Items, 4)
		require.True(t, versions.Items[1].Marker)
		for i := range 2 { // the third one and the marker
			_, err = b.DeleteVersion(ctx, []byte("logs/a"), versions.Items[i].ID)
			require.NoError(t, err)
		}
		_, err = one.Pass(ctx)
		require.NoError(t, err)
		require.False(t, gone("logs/a"), "its user wanted it back")
	}
}

// TestObjectsWithTagsExpire: those that have all tags of a rule now, whatever they were made with.
func TestObjectsWithTagsExpire(t *testing.T) {
	for _, v := range []objects.Status{objects.Enabled, objects.Never} {
		ctx, b := t.Context(), newPlace(t, memstore.New(), v)
		tags := func(names ...string) (tags []objects.Pair) {
			for _, name := range names {
				tags = append(tags, objects.Pair{Name: name, Value: "yes"})
			}
			return tags
		}
		require.NoError(t, b.o.SetLifecycle(ctx, "objects", objects.Lifecycle{
			{ID: "keys", Prefix: "elsewhere", Days: 1}, {ID: "tags", Days: 1, Tags: tags("old", "small")},
		}))
		made := map[string][]objects.Pair{
			"both": tags("old", "small"), "more": tags("a", "old", "small", "z"), "one": tags("old"), "none": nil,
			"other": {{Name: "old", Value: "no"}, {Name: "small", Value: "yes"}}, "changed": tags("old", "small"),
			"taken": tags("old", "small"), "given": nil, "hidden": tags("old", "small"),
		}
		for _, key := range slices.Sorted(maps.Keys(made)) {
			info, err := b.Put(ctx, []byte(key), strings.NewReader("body"), objects.Meta{Size: -1, Tags: made[key]})
			require.NoError(t, err)
			if to, ok := map[string][]objects.Pair{"changed": tags("new"), "taken": nil, "given": tags("small", "old")}[key]; ok {
				_, err = b.SetTags(ctx, []byte(key), info.ID, to)
				require.NoError(t, err)
			}
		}
		_, err := b.Put(ctx, []byte("hidden"), strings.NewReader("newer"), objects.Meta{Size: -1})
		require.NoError(t, err)
		rules, err := b.o.Lifecycle(ctx, "objects")
		require.NoError(t, err)
		for key := range made {
			info, err := b.Head(ctx, []byte(key), objects.Latest)
			require.NoError(t, err)
			_, by := rules.Expires(&info)
			want := ""
			if slices.Contains([]string{"both", "given", "more"}, key) {
				want = "tags"
			}
			require.Equal(t, want, by, key)
		}
		b.now = b.now.Add(49 * time.Hour)
		var expired []string
		_, err = b.cleaner(t, care.CleanOptions{Before: func(d care.Deed) bool {
			if d.Do == "expire" {
				expired = append(expired, string(d.Key))
			}
			return true
		}}).Pass(ctx)
		require.NoError(t, err)
		require.Equal(t, []string{"both", "given", "more"}, expired)
		for key := range made {
			_, err := b.Head(ctx, []byte(key), objects.Latest)
			require.Equal(t, slices.Contains(expired, key), err != nil, "%s: %v", key, err)
		}
	}
}

// TestExpiryHidesNothingNewer puts an object at every step of a cleaner.
func TestExpiryHidesNothingNewer(t *testing.T) {
	for _, v := range []objects.Status{objects.Enabled, objects.Never} {
		for step := 1; ; step++ {
			ctx, hooked := t.Context(), &listtest.Hooked{Store: memstore.New()}
			b := newPlace(t, hooked, v)
			put := func() {
				_, err := b.Put(ctx, []byte("logs/a"), strings.NewReader("a"), objects.Meta{Size: -1})
				require.NoError(t, err)
			}
			require.NoError(t, b.o.SetLifecycle(ctx, "objects", daily))
			put()
			b.now = b.now.Add(31 * 24 * time.Hour)
			calls := 0
			hooked.Hook = func() {
				if calls++; calls == step {
					put()
				}
			}
			_, err := b.cleaner(t, care.CleanOptions{}).Pass(ctx)
			require.NoError(t, err)
			hooked.Hook = nil
			if calls < step {
				require.Greater(t, step, 4)
				break
			}
			_, err = b.Head(ctx, []byte("logs/a"), objects.Latest)
			require.NoError(t, err, "step %d", step)
		}
	}
}
