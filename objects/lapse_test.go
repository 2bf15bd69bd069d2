package objects_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/test/listtest"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

const aDay = 24 * time.Hour

// versionsOfK stores versions of "k", a day apart, and returns them, newest first.
func (p *place) versionsOfK(t *testing.T, n int) (ids []objects.ID) {
	for range n {
		p.now = p.now.Add(aDay)
		info, err := p.Put(t.Context(), []byte("k"), strings.NewReader("a body that is not inline"), objects.Meta{Size: -1})
		require.NoError(t, err)
		ids = append([]objects.ID{info.ID}, ids...)
	}
	return ids
}

// left returns the versions of "k" that are seen, newest first.
func (p *place) left(t *testing.T) (ids []objects.ID) {
	for _, item := range all(t, p.Bucket) {
		ids = append(ids, item.ID)
	}
	return ids
}

func (p *place) rule(t *testing.T, r objects.Rule) {
	r.ID = "the rule"
	require.NoError(t, p.o.SetLifecycle(t.Context(), "objects", objects.Lifecycle{r}))
}

// clean passes several times, so that what is due is done whatever was kept before.
func (p *place) clean(t *testing.T, c care.Cleaner) {
	for range 2 {
		done, err := c.Pass(t.Context())
		require.NoError(t, err)
		require.NoError(t, done.FirstFailure)
		p.now = p.now.Add(10 * time.Minute)
	}
}

func TestNoncurrentVersionsExpire(t *testing.T) {
	for _, c := range []struct {
		rule objects.Rule
		left int // of eight versions, the newest of which is a few minutes old
	}{
		{objects.Rule{NoncurrentDays: 3}, 4},
		{objects.Rule{NoncurrentDays: 3, Newer: 5}, 6},
		{objects.Rule{NoncurrentDays: 1}, 2},
		{objects.Rule{NoncurrentDays: 1, Disabled: true}, 8},
		{objects.Rule{NoncurrentDays: 1, Prefix: "other"}, 8},
		{objects.Rule{NoncurrentDays: 1, MinSize: 1000}, 8},
		{objects.Rule{AbandonDays: 1}, 8},
	} {
		b := newPlace(t, memstore.New(), objects.Enabled)
		ids := b.versionsOfK(t, 8)
		b.rule(t, c.rule)
		cleaner := b.cleaner(t, care.CleanOptions{})
		done, err := cleaner.Pass(t.Context())
		require.NoError(t, err)
		require.Zero(t, done.Lapsed, "the rule is not known for the margin")
		b.now = b.now.Add(10 * time.Minute)
		b.clean(t, cleaner)
		require.Equal(t, ids[:c.left], b.left(t), "%+v", c.rule)
		for range 5 {
			b.now = b.now.Add(2 * aDay)
			b.clean(t, cleaner)
		}
		require.Len(t, b.blobs.m, len(b.left(t)))
	}
}

// TestKeptVersionsExpire: those that were uploaded in parts, and those because of which others went.
func TestKeptVersionsExpire(t *testing.T) {
	ctx, b := t.Context(), newPlace(t, memstore.New(), objects.Enabled)
	b.rule(t, objects.Rule{NoncurrentDays: 1})
	cleaner := b.cleaner(t, care.CleanOptions{})
	b.versionsOfK(t, 1)
	u, err := b.CreateUpload(ctx, []byte("k"), objects.Meta{})
	require.NoError(t, err)
	_, err = b.Complete(ctx, []byte("k"), u.ID, []objects.Part{part(t, b.Bucket, u, 1, "one")}, nil)
	require.NoError(t, err)
	b.clean(t, cleaner)
	for range 3 {
		newest := b.versionsOfK(t, 1)[0]
		b.clean(t, cleaner)
		b.now = b.now.Add(aDay + time.Hour)
		b.clean(t, cleaner)
		require.Equal(t, []objects.ID{newest}, b.left(t))
	}
}

// TestWhatADeleteUncoversStays has a user delete the newest version at every step of a cleaner: what is
// seen then stays, and is not what the cleaner is about to burn.
func TestWhatADeleteUncoversStays(t *testing.T) {
	for _, age := range []time.Duration{aDay - time.Minute, aDay, aDay + time.Minute, aDay + 6*time.Minute, 3 * aDay} {
		for step := 1; ; step++ {
			ctx, hooked := t.Context(), &listtest.Hooked{Store: memstore.New()}
			b := newPlace(t, hooked, objects.Enabled)
			b.rule(t, objects.Rule{NoncurrentDays: 1})
			cleaner := b.cleaner(t, care.CleanOptions{})
			_, err := cleaner.Pass(ctx)
			require.NoError(t, err)
			ids := b.versionsOfK(t, 3)
			b.now = time.UnixMicro(int64(ids[0].Stamp)).Add(age)
			var shown objects.Info
			calls, deleted := 0, false
			hooked.Hook = func() {
				if calls++; calls == step {
					_, err := b.DeleteVersion(ctx, []byte("k"), ids[0])
					require.NoError(t, err)
					shown, err = b.Head(ctx, []byte("k"), objects.Latest)
					deleted = err == nil || store.KindOf(err) == store.NotFound
				}
			}
			_, err = cleaner.Pass(ctx)
			require.NoError(t, err)
			hooked.Hook = nil
			if !deleted {
				require.Greater(t, step, 4)
				break
			}
			if now, err := b.Head(ctx, []byte("k"), objects.Latest); !shown.ID.IsZero() {
				require.NoError(t, err, "age %v, step %d", age, step)
				require.Equal(t, shown.ID, now.ID, "age %v, step %d", age, step)
			}
			require.Equal(t, age < aDay, !shown.ID.IsZero(), "what has expired is not seen again: age %v, step %d", age, step)
		}
	}
}

// TestADeleteTakesAlongWhatHasExpired, and nothing else.
func TestADeleteTakesAlongWhatHasExpired(t *testing.T) {
	for _, c := range []struct {
		rule    objects.Rule
		deletes int
		left    []int
	}{
		{objects.Rule{NoncurrentDays: 2}, 0, []int{1}},
		{objects.Rule{NoncurrentDays: 2}, 1, []int{0}},
		{objects.Rule{NoncurrentDays: 2}, 4, []int{0, 1, 2, 3}},
		{objects.Rule{NoncurrentDays: 2, Newer: 3}, 0, []int{1, 2, 3}},
		{objects.Rule{NoncurrentDays: 9}, 0, []int{1, 2, 3, 4}},
		{objects.Rule{AbandonDays: 1}, 0, []int{1, 2, 3, 4}},
	} {
		b := newPlace(t, memstore.New(), objects.Enabled)
		ids := b.versionsOfK(t, 5)
		b.rule(t, c.rule)
		b.now = b.now.Add(aDay + time.Hour)
		_, err := b.DeleteVersion(t.Context(), []byte("k"), ids[c.deletes])
		require.NoError(t, err)
		want := []objects.ID{}
		for _, i := range c.left {
			want = append(want, ids[i])
		}
		require.Equal(t, want, b.left(t), "%+v", c)
	}
}

// Tags lie beside versions, and hinder neither deletes nor cleaners.
func TestTaggedVersionsExpireToo(t *testing.T) {
	b := newPlace(t, memstore.New(), objects.Enabled)
	ids := b.versionsOfK(t, 6)
	for _, id := range ids {
		_, err := b.SetTags(t.Context(), []byte("k"), id, []objects.Pair{{Name: "a", Value: "b"}})
		require.NoError(t, err)
	}
	b.rule(t, objects.Rule{NoncurrentDays: 3})
	_, err := b.DeleteVersion(t.Context(), []byte("k"), ids[0])
	require.NoError(t, err)
	require.Equal(t, ids[1:4], b.left(t))
	cleaner := b.cleaner(t, care.CleanOptions{})
	b.clean(t, cleaner)
	require.Equal(t, ids[1:4], b.left(t))
	b.now = b.now.Add(2 * aDay)
	b.clean(t, cleaner)
	require.Equal(t, ids[1:2], b.left(t))
}

// TestAnExpiredObjectHasItsDaysAsANoncurrentOne: they begin when it is hidden, however old it is.
func TestAnExpiredObjectHasItsDaysAsANoncurrentOne(t *testing.T) {
	b := newPlace(t, memstore.New(), objects.Enabled)
	b.versionsOfK(t, 1)
	b.now = b.now.Add(100 * aDay)
	b.rule(t, objects.Rule{Days: 1, NoncurrentDays: 7})
	cleaner := b.cleaner(t, care.CleanOptions{})
	b.clean(t, cleaner)
	b.clean(t, cleaner)
	require.Len(t, b.left(t), 2, "a delete marker, and the version")
	b.now = b.now.Add(6 * aDay)
	b.clean(t, cleaner)
	require.Len(t, b.left(t), 2)
	b.now = b.now.Add(aDay)
	for range 4 {
		b.clean(t, cleaner)
		b.now = b.now.Add(2 * aDay)
	}
	require.Empty(t, b.left(t), "the marker hides nothing any more, and the rule is for it, too")
	require.Empty(t, b.blobs.m)
}

func TestLifecycles(t *testing.T) {
	ctx := t.Context()
	c, o, _ := openObjects(t)
	require.NoError(t, o.CreateBucket(ctx, "photos"))
	full := objects.Rule{
		ID: "full", Prefix: "a\x00b", MinSize: 1, Below: 1 << 40, Form: 2, Date: time.Date(2030, 1, 2, 0, 0, 0, 0, time.UTC),
		NoncurrentDays: 3, Newer: 100, Disabled: true,
	}
	tags := func(n int) (tags []objects.Pair) {
		for i := range n {
			tags = append(tags, objects.Pair{Name: fmt.Sprint(i), Value: "v"})
		}
		return tags
	}
	all := objects.Lifecycle{full, {ID: "2", Days: 5, Unmark: true, AbandonDays: 1 << 30}}
	require.NoError(t, o.SetLifecycle(ctx, "photos", all))
	require.NoError(t, o.SetStatus(ctx, "photos", objects.Enabled))
	got, err := o.Lifecycle(ctx, "photos")
	require.NoError(t, err)
	require.Equal(t, all, got)
	var long objects.Lifecycle
	for i := range care.MaxRules + 1 {
		long = append(long, objects.Rule{ID: fmt.Sprint(i), Days: 1})
	}
	wide := append(objects.Lifecycle{}, long[:16]...)
	for i := range wide {
		wide[i].Prefix = strings.Repeat("p", 1000)
	}
	for name, bad := range map[string]objects.Lifecycle{
		"too many": long, "too large": wide, "no ID": {{Days: 1}}, "a long ID": {{ID: strings.Repeat("a", 256)}},
		"the same ID": {{ID: "1"}, {ID: "1"}}, "a long prefix": {{ID: "1", Prefix: strings.Repeat("a", 1025)}},
		"negative days": {{ID: "1", Days: -1}}, "too many versions": {{ID: "1", NoncurrentDays: 1, Newer: 101}},
		"versions without days": {{ID: "1", Newer: 1}}, "no sizes": {{ID: "1", MinSize: 5, Below: 5}},
		"too many tags": {{ID: "1", Days: 1, Tags: tags(11)}}, "tags and versions": {{ID: "1", NoncurrentDays: 1, Tags: tags(1)}},
		"tags and uploads": {{ID: "1", AbandonDays: 1, Tags: tags(1)}}, "tags and markers": {{ID: "1", Unmark: true, Tags: tags(1)}},
		"long tags":   {{ID: "1", Days: 1, Tags: []objects.Pair{{Name: strings.Repeat("a", 16<<10)}}}},
		"no midnight": {{ID: "1", Date: time.Unix(1, 0)}}, "a date and days": {{ID: "1", Date: full.Date, Days: 1}},
	} {
		require.ErrorIs(t, o.SetLifecycle(ctx, "photos", bad), store.InvalidArgument, name)
	}
	require.NoError(t, o.SetLifecycle(ctx, "photos", long[:care.MaxRules]))
	require.NoError(t, o.SetLifecycle(ctx, "photos", nil))
	settings, err := c.Bucket("photos").Settings(ctx)
	require.NoError(t, err)
	require.Equal(t, []byte("o\x01\x01"), settings, "older programs know it again")
	require.NoError(t, c.CreateBucket(ctx, "plain"))
	require.ErrorIs(t, o.SetLifecycle(ctx, "plain", all), objects.ErrPlain)

	for version, rules := range map[byte]objects.Lifecycle{
		2: all, 3: append(objects.Lifecycle{{ID: "3", Days: 1, Tags: tags(10)}}, all...),
	} {
		require.NoError(t, o.SetLifecycle(ctx, "photos", rules))
		got, err := o.Lifecycle(ctx, "photos")
		require.NoError(t, err)
		require.Equal(t, rules, got)
		encoded, err := c.Bucket("photos").Settings(ctx)
		require.NoError(t, err)
		require.Equal(t, version, encoded[1], "older programs refuse what they do not know")
		for n := range encoded {
			_, err := objects.ParseSettings(encoded[:n])
			require.Error(t, err)
		}
		_, err = objects.ParseSettings(append(encoded, 0))
		require.Error(t, err)
		encoded[1] = 5 - version
		_, err = objects.ParseSettings(encoded)
		require.Error(t, err)
	}
}
