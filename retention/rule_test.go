package retention_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/keys"
	"github.com/evenkeel/evenkeel/retention"
	"github.com/evenkeel/evenkeel/store"
)

func binary(v int64) []byte { return keys.BigEndian(uint64(v)) }

func inverted(v int64) []byte { return keys.BigEndian(^uint64(v)) }

// forms are how programs write times into keys, without this package, and the unit of each.
var forms = map[string]struct {
	write       func(time.Time) []byte
	unit        time.Duration
	newestFirst bool
}{
	"2006-01-02":          {layout("2006-01-02"), 24 * time.Hour, false},
	"2006/01/02/15/":      {layout("2006/01/02/15/"), time.Hour, false},
	"20060102T150405":     {layout("20060102T150405"), time.Second, false},
	"2006_01_02 15.04.05": {layout("2006_01_02 15.04.05"), time.Second, false},
	"decimal-day":         {func(t time.Time) []byte { return fmt.Append(nil, t.Unix()/86400) }, 24 * time.Hour, false},
	"decimal-hour":        {func(t time.Time) []byte { return fmt.Append(nil, t.Unix()/3600) }, time.Hour, false},
	"decimal-s":           {func(t time.Time) []byte { return fmt.Append(nil, t.Unix()) }, time.Second, false},
	"decimal-ms":          {func(t time.Time) []byte { return fmt.Append(nil, t.UnixMilli()) }, time.Millisecond, false},
	"decimal-us":          {func(t time.Time) []byte { return fmt.Append(nil, t.UnixMicro()) }, time.Microsecond, false},
	"decimal-ns":          {func(t time.Time) []byte { return fmt.Append(nil, t.UnixNano()) }, 1, false},
	"decimal-snowflake":   {func(t time.Time) []byte { return fmt.Append(nil, snowflake(t)) }, time.Millisecond, false},
	"decimal-s ": {func(t time.Time) []byte { return fmt.Append(nil, 9_999_999_999-t.Unix()) },
		time.Second, true},
	"binary-s":          {func(t time.Time) []byte { return binary(t.Unix()) }, time.Second, false},
	"binary-ms":         {func(t time.Time) []byte { return binary(t.UnixMilli()) }, time.Millisecond, false},
	"binary-ms ":        {func(t time.Time) []byte { return inverted(t.UnixMilli()) }, time.Millisecond, true},
	"binary-ns":         {func(t time.Time) []byte { return binary(t.UnixNano()) }, 1, false},
	"binary-snowflake":  {func(t time.Time) []byte { return binary(snowflake(t)) }, time.Millisecond, false},
	"binary-snowflake ": {func(t time.Time) []byte { return inverted(snowflake(t)) }, time.Millisecond, true},
	"tuple-day":         {func(t time.Time) []byte { return keys.Of(keys.Int(t.Unix() / 86400)) }, 24 * time.Hour, false},
	"tuple-us":          {func(t time.Time) []byte { return keys.Of(keys.Time(t)) }, time.Microsecond, false},
	"tuple-us ":         {func(t time.Time) []byte { return keys.Of(keys.Desc(keys.Time(t))) }, time.Microsecond, true},
	"tuple-snowflake ": {func(t time.Time) []byte { return keys.Of(keys.Desc(keys.Int(snowflake(t)))) },
		time.Millisecond, true},
}

func layout(l string) func(time.Time) []byte {
	return func(t time.Time) []byte { return t.UTC().AppendFormat(nil, l) }
}

// snowflake is an id of some worker.
func snowflake(t time.Time) int64 { return keys.FirstSnowflake(t) + 77<<12 + 5 }

// Of keys with times around the limit exactly those are old whose whole unit is, whatever follows the time.
func TestWhatIsOld(t *testing.T) {
	r := rand.New(rand.NewPCG(seed.Number(t), 1))
	for name, form := range forms {
		t.Run(name, func(t *testing.T) {
			rule := retention.Rule{Bucket: "b", Prefix: randomBytes(r, r.IntN(4)), Time: name, NewestFirst: form.newestFirst}
			if form.newestFirst {
				rule.Time = name[:len(name)-1]
			}
			olds := 0
			const most = 2000
			for range most {
				now := time.Unix(1_780_000_000+r.Int64N(1_500_000_000), r.Int64N(1e9)) // 2026 to 2073
				rule.Keep = 1 + time.Duration(r.Int64N(int64(5*365*24*time.Hour)))
				require.NoError(t, retention.Check([]retention.Rule{rule}))
				limit := now.Add(-rule.Keep)
				at := limit.Add(time.Duration(r.Int64N(9)-4) * form.unit / 2)
				if r.IntN(4) == 0 {
					at = limit.Add(time.Duration(r.Int64N(int64(3*365*24*time.Hour))) - 3*365*12*time.Hour)
				}
				key := append(append(bytes.Clone(rule.Prefix), form.write(at)...), suffix(r)...)
				unit := at.Truncate(form.unit)
				read, err := rule.TimeOf(key)
				require.NoError(t, err)
				require.WithinRange(t, read, unit, unit.Add(form.unit), "%q of %v", key, at)
				from, to, some := rule.Old(now)
				require.True(t, some)
				old := bytes.Compare(from, key) <= 0 && (len(to) == 0 || bytes.Compare(key, to) < 0)
				require.Equal(t, limit.Truncate(form.unit).After(unit), old, "key %q of %v, limit %v, from %q to %q", key, at,
					limit, from, to)
				if old {
					olds++
				}
				for _, bound := range [][]byte{from, to} {
					require.True(t, bytes.HasPrefix(bound, rule.Prefix) || len(bound) == 0 || bytes.Compare(bound, key) > 0)
				}
			}
			require.Greater(t, olds, most/8)
			require.Less(t, olds, most/8*7)
		})
	}
}

// suffix is what follows a time: no digit.
func suffix(r *rand.Rand) []byte {
	return append([]byte("/-\x00\xff"[r.IntN(4):][:1]), randomBytes(r, r.IntN(4))...)[:r.IntN(2)]
}

func randomBytes(r *rand.Rand, n int) []byte {
	out := make([]byte, n)
	for i := range out {
		out[i] = byte(r.UintN(256)) | byte(r.UintN(2)*255) // many are 0xff
	}
	return out
}

// Numbers of another unit are told from those of the rule, where taking them for those would drop what is new.
func TestKeysOfAnotherUnit(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 8, time.UTC)
	told := 0
	for wrong, form := range forms {
		for name, right := range forms {
			rule := retention.Rule{Bucket: "b", Keep: time.Hour, Time: name, NewestFirst: right.newestFirst}
			if right.newestFirst {
				rule.Time = name[:len(name)-1]
			}
			key := form.write(now)
			from, to, _ := rule.Old(now)
			if bytes.Compare(key, from) < 0 || len(to) > 0 && bytes.Compare(key, to) >= 0 {
				continue // it stays anyway
			}
			at, err := rule.TimeOf(key)
			if err == nil && now.Sub(at) < 48*time.Hour { // nearly the same form: a day, without its hour
				continue
			}
			mine, _, numbers := strings.Cut(wrong, "-")
			if !numbers || !strings.HasPrefix(name, mine) || mine == "2006" ||
				strings.Contains(wrong, "-ns") && strings.Contains(name, "-snowflake") { // for years these are about the same
				continue
			}
			told++
			require.Error(t, err, "%s as %s is %v", wrong, name, at)
		}
	}
	require.Greater(t, told, 5)
}

// A key that has no whole time of the rule's form is told, with the reason: its bucket is not what the rule is for.
func TestKeysWithoutATime(t *testing.T) {
	const prefix = "p/"
	for _, c := range []struct {
		time        string
		newestFirst bool
		key, why    string
	}{
		{"2006-01-02", false, prefix + "2026-01-0", "too short"},
		{"2006-01-02", false, prefix + "2026-13-01", "month out of range"},
		{"2006-01-02", false, "q/2026-12-01", `does not begin with "p/"`},
		{"decimal-s", false, prefix, "0 digits, not 10"},
		{"decimal-s", false, prefix + "178000000x", "9 digits, not 10"},
		{"decimal-s", false, prefix + "17800000000", "11 digits, not 10"},
		{"decimal-ns", false, prefix + "9999999999999999999", "too large"},
		{"decimal-s", true, prefix + "9999999999", "hardly of this unit"},
		{"binary-s", false, prefix + "\x00\x00\x00\x00\x6a\x18\x6b", "too short"},
		{"binary-s", false, prefix + string(inverted(0)), "too large"},
		{"binary-s", true, prefix + string(binary(0)), "too large"},
		{"tuple-s", false, prefix, "no such element"},
		{"tuple-s", false, prefix + string(keys.Of(keys.String("text"))), "no such element"},
		{"tuple-s", false, prefix + string(keys.Of(keys.Desc(keys.Int(1_780_000_000)))), "no such element"},
		{"decimal-s", false, prefix + "0031535999", "hardly of this unit"},
	} {
		rule := retention.Rule{Bucket: "b", Prefix: []byte(prefix), Keep: time.Hour, Time: c.time, NewestFirst: c.newestFirst}
		require.NoError(t, retention.Check([]retention.Rule{rule}))
		_, err := rule.TimeOf([]byte(c.key))
		require.ErrorContains(t, err, c.why, "%s %q", c.time, c.key)
	}
	rule := retention.Rule{Bucket: "b", Keep: time.Hour, Time: "decimal-s"}
	at, err := rule.TimeOf([]byte("0031536000"))
	require.NoError(t, err, "the first second of 1971")
	require.Equal(t, time.Date(1971, 1, 1, 0, 0, 0, 0, time.UTC), at.UTC())
}

// The first and the last times that forms have are bounds like others: nothing is old before the first one, and what
// has the last one is not old while its unit is not over.
func TestFirstAndLastTimes(t *testing.T) {
	old := func(form string, newestFirst bool, limit time.Time) (from, to []byte, some bool) {
		rule := retention.Rule{Bucket: "b", Keep: time.Hour, Time: form, NewestFirst: newestFirst}
		return rule.Old(limit.Add(rule.Keep))
	}
	for _, form := range []string{"decimal-day", "binary-day", "tuple-day"} {
		for _, newestFirst := range []bool{false, true} {
			for _, limit := range []time.Time{{}, time.Unix(0, 0), time.Unix(5*3600, 0), time.Unix(-5*3600, 0)} {
				_, _, some := old(form, newestFirst, limit)
				require.False(t, some, "%s %v", form, limit)
			}
			from, to, some := old(form, newestFirst, time.Unix(86400, 0))
			require.True(t, some)
			require.True(t, bytes.Compare(from, to) < 0 || len(to) == 0)
		}
	}
	from, to, some := old("2006-01-02", false, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	require.True(t, some)
	require.Equal(t, "0000-01-01", string(from))
	require.Equal(t, "2026-01-01", string(to))
	_, _, some = old("2006-01-02", false, time.Date(0, 1, 1, 5, 0, 0, 0, time.UTC))
	require.False(t, some)
	_, to, some = old("2006-01-02", false, time.Date(0, 6, 1, 0, 0, 0, 0, time.UTC))
	require.True(t, some)
	require.Equal(t, "0000-06-01", string(to))
	_, _, some = old("2006-01-02", false, time.Date(-1, 6, 1, 0, 0, 0, 0, time.UTC))
	require.False(t, some)
	_, to, some = old("2006-01-02T15", false, time.Date(2026, 1, 1, 1, 0, 0, 0, time.FixedZone("east", 3*3600)))
	require.True(t, some)
	require.Equal(t, "2025-12-31T22", string(to), "times in keys are UTC")
	_, _, some = old("2006-01-02", false, time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC))
	require.False(t, some, "years of five digits do not sort")

	// Seconds of ten digits end in 2286; in eight bytes they go on.
	_, to, some = old("decimal-s", false, time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC))
	require.True(t, some)
	require.Equal(t, "9999999999", string(to))
	from, _, some = old("decimal-s", true, time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC))
	require.True(t, some)
	require.Equal(t, "0000000001", string(from))
	_, to, _ = old("binary-s", false, time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC))
	require.Equal(t, binary(time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC).Unix()), to)

	// Nanoseconds end in 2262.
	const last = int64(1<<63 - 1)
	for _, limit := range []time.Time{
		time.Unix(0, last), time.Unix(last/int64(time.Second), 999_999_999), time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC),
	} {
		from, to, some = old("binary-ns", false, limit)
		require.True(t, some)
		require.Equal(t, binary(0), from)
		require.Equal(t, binary(last), to, "%v", limit)
	}
	_, to, _ = old("binary-ns", false, time.Unix(last/int64(time.Second)-1, 999_999_999))
	require.Equal(t, binary(last/int64(time.Second)*int64(time.Second)-1), to)

	_, _, some = old("no form", false, time.Now())
	require.False(t, some, "a rule that is not valid drops nothing")
}

func TestRulesAreRead(t *testing.T) {
	rules, err := retention.Parse([]byte(`
# comment
rules:
- bucket: sensors-*
  prefix: day/\xff
  keep: 720h
  time: 2006-01-02
- {bucket: feed, keep: 1h30m, time: tuple-snowflake, newest-first: true}
`))
	require.NoError(t, err)
	require.Equal(t, []retention.Rule{
		{Bucket: "sensors-*", Prefix: []byte("day/\xff"), Keep: 720 * time.Hour, Time: "2006-01-02"},
		{Bucket: "feed", Keep: 90 * time.Minute, Time: "tuple-snowflake", NewestFirst: true},
	}, rules)
	require.True(t, rules[0].Applies("sensors-1"))
	require.False(t, rules[0].Applies("sensor"))
	for _, none := range []string{"", "rules: []", "# comment"} {
		_, err := retention.Parse([]byte(none))
		require.ErrorContains(t, err, "no rules", "%q", none)
	}
}

func TestWrongRules(t *testing.T) {
	const one = "- {bucket: b, keep: 1h, time: 2006}\n- "
	for text, want := range map[string]string{
		`- {bucket: b, keep: 1h, time: 2006, colour: red}`:           "colour",
		`  {bucket: b, keep: 1h, time: 2006}`:                        "rules are YAML",
		`- {keep: 1h, time: 2006}`:                                   "bucket is missing",
		`- {bucket: "b[", keep: 1h, time: 2006}`:                     "is no pattern",
		`- {bucket: "*[a-", keep: 1h, time: 2006}`:                   "is no pattern",
		`- {bucket: 'b\', keep: 1h, time: 2006}`:                     "is no pattern",
		`- {bucket: b, time: 2006}`:                                  "keep is 0s",
		`- {bucket: b, keep: 0s, time: 2006}`:                        "keep is 0s",
		`- {bucket: b, keep: -1h, time: 2006}`:                       "keep is -1h",
		`- {bucket: b, keep: 30, time: 2006}`:                        "time.Duration",
		`- {bucket: b, keep: 30d, time: 2006}`:                       "30d",
		`- {bucket: b, keep: 1h}`:                                    `time "" is no form`,
		`- {bucket: b, keep: 1h, time: unix}`:                        `time "unix" is no form`,
		`- {bucket: b, keep: 1h, time: decimal}`:                     `is no form`,
		`- {bucket: b, keep: 1h, time: decimal-week}`:                `is no form`,
		`- {bucket: b, keep: 1h, time: 2006-02-01}`:                  "no layout",
		`- {bucket: b, keep: 1h, time: 2006-1-2}`:                    "no layout",
		`- {bucket: b, keep: 1h, time: 2006-01-02 15:04:05.000}`:     "no layout",
		`- {bucket: b, keep: 1h, time: 2006-01-02T15:04:05Z07:00}`:   "no layout",
		`- {bucket: b, keep: 1h, time: 2006, newest-first: true}`:    "newest-first is for numbers",
		`- {bucket: b, keep: 1h, prefix: '\x', time: 2006}`:          `\x`,
		"- {bucket: b, keep: 1h, time: written, newest-first: true}": "not for the time of the put",

		one + "{bucket: '*', keep: 2h, time: 2006}": "rules 1 (bucket b, prefix \"\", keep 1h0m0s, " +
			"time 2006) and 2 (bucket *",
		one + "{bucket: c, keep: 0s, time: decimal-s, newest-first: true}": "rule 2 (bucket c, prefix \"\", keep 0s, " +
			"time decimal-s, newest first)",
		"- {bucket: b, prefix: a, keep: 1h, time: 2006}\n- {bucket: b, prefix: ab, keep: 2h, time: 2006}": "the same",
		one + "{bucket: b, keep: 1h, time: 2006-01}":                                                      "the same",
		"- {bucket: 'a*', keep: 1h, time: 2006}\n- {bucket: '*b', keep: 2h, time: 2006}":                  "the same",
		"- {bucket: '[a\\]c]x', keep: 1h, time: 2006}\n- {bucket: 'cx', keep: 2h, time: 2006}":            "the same",
	} {
		_, err := retention.Parse([]byte("rules:\n" + text))
		require.ErrorContains(t, err, want, text)
	}
	for _, text := range []string{
		one + "{bucket: '?', keep: 1h, time: 2006}",
		"- {bucket: b, keep: 1ns, time: 2006}",
		"- {bucket: b, keep: 1h, time: written}",
		"- {bucket: b, prefix: a/, keep: 1h, time: 2006}\n- {bucket: b, prefix: b/, keep: 2h, time: 2006}",
		"- {bucket: 'a*', keep: 1h, time: 2006}\n- {bucket: 'b*', keep: 2h, time: 2006}",
		"- {bucket: '[a\\]c]x', keep: 1h, time: 2006}\n- {bucket: 'cy', keep: 2h, time: 2006}",
		"- {bucket: '[ac]x', keep: 1h, time: 2006}\n- {bucket: '[ac]xx', keep: 2h, time: 2006}",
	} {
		_, err := retention.Parse([]byte("rules:\n" + text))
		require.NoError(t, err, text)
	}
}

// A prefix is at most as long as keys are, and characters of names that no file has are characters like others.
func TestLimitsOfRules(t *testing.T) {
	rule := retention.Rule{Bucket: "b", Prefix: make([]byte, store.MaxKeyBytes), Keep: time.Hour, Time: "2006"}
	require.NoError(t, retention.Check([]retention.Rule{rule}))
	rule.Prefix = append(rule.Prefix, 0)
	require.ErrorContains(t, retention.Check([]retention.Rule{rule}), fmt.Sprint("at most ", store.MaxKeyBytes))
	one := retention.Rule{Bucket: "a\x00c", Keep: time.Hour, Time: "2006"}
	two := retention.Rule{Bucket: "abbc", Keep: time.Minute, Time: "2006"}
	require.NoError(t, retention.Check([]retention.Rule{one, two}))
}

// Ids of the first month that ids have are hardly ids; later ones are.
func TestTheFirstSnowflakes(t *testing.T) {
	rule := retention.Rule{Bucket: "b", Keep: time.Hour, Time: "binary-snowflake"}
	first := keys.SnowflakeTime(0).AddDate(0, 1, 0)
	at, err := rule.TimeOf(binary(keys.FirstSnowflake(first)))
	require.NoError(t, err)
	require.True(t, first.Equal(at))
	_, err = rule.TimeOf(binary(keys.FirstSnowflake(first.Add(-time.Millisecond))))
	require.ErrorContains(t, err, "hardly of this unit")
}

// Rules for buckets whose patterns fit one name are told from others: against all names of up to six letters.
func TestPatternsThatMeet(t *testing.T) {
	r := rand.New(rand.NewPCG(seed.Number(t), 2))
	var names []string
	for n := range 1 + 3 + 9 + 27 + 81 + 243 + 729 {
		name := ""
		for ; n > 0; n = (n - 1) / 3 {
			name += string("abc"[(n-1)%3])
		}
		names = append(names, name)
	}
	met := 0
	for range 1000 {
		pattern := func() (p string) {
			for range 1 + r.IntN(3) {
				p += []string{"a", "b", "c", "*", "?", `\b`}[r.IntN(6)]
			}
			return p
		}
		a, b := pattern(), pattern()
		both := false
		for _, name := range names {
			one, _ := path.Match(a, name)
			two, _ := path.Match(b, name)
			both = both || one && two
		}
		err := retention.Check([]retention.Rule{
			{Bucket: a, Keep: time.Hour, Time: "2006"}, {Bucket: b, Keep: time.Minute, Time: "2006"},
		})
		require.Equal(t, both, err != nil, "%s and %s", a, b)
		if both {
			met++
		}
	}
	require.Greater(t, met, 100)
}
