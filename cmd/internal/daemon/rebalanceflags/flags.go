// Package rebalanceflags has the command-line flags of balancing, which splits and merges partitions: how large
// partitions may be, when their sizes are checked, and where the sizes are counted.
package rebalanceflags

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/robfig/cron/v3"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/counter/localcounter"
	"github.com/evenkeel/evenkeel/counter/rediscounter"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/internal/webguard"
	"github.com/evenkeel/evenkeel/retention"
)

// Flags are the command-line flags about balancing: how large partitions may be, and how their sizes are known, e.g.
// --max-rows. The command-line parser kong fills the fields.
type Flags struct {
	MaxRows           int64          `default:"100000" help:"Most rows of a partition: larger ones are split."`
	MinRows           *int64         `placeholder:"N" help:"${rebalance_min_rows=}"`
	RebalanceInterval *time.Duration `placeholder:"10s" help:"${rebalance_rebalance_interval=}"`
	Schedule          string         `placeholder:"CRON" help:"${rebalance_schedule=}"`
	Counter           string         `placeholder:"URL" env:"EVENKEEL_COUNTER" help:"${rebalance_counter=}"`
	MaxBytes          int64          `default:"104857600" help:"${rebalance_max_bytes=}"`
	LoadPerS          float64        `default:"1000" help:"${rebalance_load_per_s=}"`
	LoadShare         float64        `default:"0.25" help:"${rebalance_load_share=}"`
	Planner           string         `default:"exact" enum:"even,exact,greedy,genetic,auto" help:"${rebalance_planner=}"`
	Cool              time.Duration  `default:"30m" help:"${rebalance_cool=}"`
	MoveRate          int            `default:"20000" help:"${rebalance_move_rate=}"`
	MoveRows          int64          `placeholder:"N" help:"${rebalance_move_rows=}"`
	History           string         `placeholder:"FILE" help:"${rebalance_history=}"`
	MoveHours         []string       `placeholder:"22:00-06:00" help:"${rebalance_move_hours=}"`
	Retention         string         `placeholder:"FILE" help:"${rebalance_retention=}"`
	RetentionEvery    time.Duration  `default:"1h" help:"${rebalance_retention_every=}"`

	rules []retention.Rule // set by Validate from the file of --retention
}

// defaultInterval is the default pause between two checks of the sizes of partitions, if the sizes are counted.
const defaultInterval = 10 * time.Second

// Validate returns an error if a flag has an invalid value. Validate also reads the rules in the file of --retention.
func (f *Flags) Validate() error {
	switch {
	case f.MaxRows < 2:
		return fmt.Errorf("--max-rows is at least 2, not %d", f.MaxRows)
	case f.MinRows != nil && *f.MinRows < 0:
		return fmt.Errorf("--min-rows is at least 0, not %d", *f.MinRows)
	case f.MinRows != nil && *f.MinRows > f.MaxRows/2:
		return fmt.Errorf("--min-rows is at most half of --max-rows, %d, not %d: else ranges that were just split would "+
			"be merged again", f.MaxRows/2, *f.MinRows)
	case f.RebalanceInterval != nil && *f.RebalanceInterval < 0:
		return errors.New("--rebalance-interval is a pause, or 0 for no checks")
	case f.Cool < 0:
		return errors.New("--cool is a time, or 0 for none")
	case f.MoveRate < 0:
		return errors.New("--move-rate is a number of rows, or 0 for as many as possible")
	case f.MaxBytes < 0:
		return errors.New("--max-bytes is a number of bytes, or 0 for no limit")
	case !(f.LoadPerS >= 0):
		return errors.New("--load-per-s is a number of requests per second, or 0 for no splits by load")
	case !(f.LoadShare >= 0 && f.LoadShare <= 1):
		return fmt.Errorf("--load-share is a share, 0 to 1, not %g", f.LoadShare)
	case f.MoveRows < 0:
		return errors.New("--move-rows is a number of rows, or 0 for what --move-rate does in a minute")
	}
	if _, err := f.schedule(); err != nil {
		return err
	}
	if f.Counter != "" {
		if _, err := rediscounter.ParseURL(f.Counter); err != nil {
			return fmt.Errorf("--counter: %w", err)
		}
	}
	if _, err := f.hours(); err != nil {
		return err
	}
	return f.readRules()
}

// readRules reads the rules of retention, which say which keys are deleted as old, from the file of --retention.
func (f *Flags) readRules() (err error) {
	if f.Retention == "" {
		return nil
	}
	if f.RetentionEvery <= 0 {
		return fmt.Errorf("--retention-every is a time above zero, not %v", f.RetentionEvery)
	}
	f.rules, _, err = ReadRules("--retention", f.Retention)
	return err
}

// ReadRules returns the rules of retention in a file, which say which keys are old enough to delete, and the text of
// the file. name is the path of the file. flag is the flag that names the file, for errors.
func ReadRules(flag, name string) (rules []retention.Rule, text []byte, err error) {
	if text, err = os.ReadFile(kong.ExpandPath(name)); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", flag, err)
	}
	if rules, err = retention.Parse(text); err != nil {
		return nil, nil, fmt.Errorf("%s %s: %w", flag, name, err)
	}
	return rules, text, nil
}

// Rules returns the rules of retention in the file of --retention, which say which keys are old enough to delete. The
// caller must have called Validate before, as Validate reads the file.
func (f *Flags) Rules() []retention.Rule { return f.rules }

// schedule returns the times of --schedule at which the sizes of partitions are checked, or nil if the flag is not set.
func (f *Flags) schedule() (cron.Schedule, error) {
	if f.Schedule == "" {
		return nil, nil
	}
	if f.RebalanceInterval != nil {
		return nil, errors.New("--schedule and --rebalance-interval both say when to check sizes: give one of them")
	}
	if strings.Contains(f.Schedule, "TZ=") && !strings.Contains(f.Schedule, " ") {
		return nil, fmt.Errorf("--schedule %q names a zone and no time", f.Schedule) // the parser would panic
	}
	s, err := cron.ParseStandard(f.Schedule)
	if err != nil {
		return nil, fmt.Errorf("--schedule %q is not minute, hour, day, month and weekday, like '*/10 * * * *': %w",
			f.Schedule, err)
	}
	if s.Next(scheduleFrom).IsZero() {
		return nil, fmt.Errorf("--schedule %q: there is no such time", f.Schedule)
	}
	return s, nil
}

// scheduleFrom is the time from which the pauses of --schedule are measured. Its time zone is UTC, as the times of a
// schedule without a time zone are in UTC.
var scheduleFrom = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

// longestGap returns the longest pause between two successive times of the schedule s. longestGap goes through the
// times within one year, and at most 2000 times.
func longestGap(s cron.Schedule) (gap time.Duration) {
	const looks = 2000
	at := s.Next(scheduleFrom)
	for range looks {
		next := s.Next(at)
		if next.IsZero() || next.Sub(scheduleFrom) > 366*24*time.Hour {
			return max(gap, next.Sub(at))
		}
		gap, at = max(gap, next.Sub(at)), next
	}
	return gap
}

// Interval returns the pause between two checks of the sizes of partitions, or 0 if sizes are not checked. If
// --schedule is set, it is the longest pause of the schedule. The parameter counted says whether the process counts
// rows as they come and go.
func (f *Flags) Interval(counted bool) time.Duration {
	s, _ := f.schedule() // it was validated
	switch {
	case s != nil:
		return longestGap(s)
	case f.RebalanceInterval != nil:
		return *f.RebalanceInterval
	case counted:
		return defaultInterval
	}
	return 0
}

// Counting returns how this process knows the sizes of partitions on Cassandra: by counts in Redis, by reading all
// rows, or not at all. All processes of a keyspace must agree. The parameter elsewhere is true for a process that never
// carries out splits and merges.
func (f *Flags) Counting(elsewhere bool) mapclient.Counting {
	switch {
	case f.Counter != "" && (elsewhere || f.Interval(true) > 0):
		return mapclient.InRedis
	case f.Interval(false) > 0:
		return mapclient.ByLooks
	case elsewhere:
		return mapclient.Elsewhere
	}
	return mapclient.NotCounted
}

// OpenCounter opens the counters from which the sizes of partitions are known. They are in the Redis that the flag
// --counter names. Without the flag they are in files in the directory dir. If dir is empty, too, the result is nil,
// and sizes are not counted.
func (f *Flags) OpenCounter(dir string, log *slog.Logger) (counter.Backend, error) {
	if f.Counter == "" && dir == "" {
		return nil, nil
	}
	if f.Counter == "" {
		return localcounter.Open(dir, localcounter.Options{Logger: log})
	}
	o, err := rediscounter.ParseURL(f.Counter)
	if err != nil {
		return nil, err
	}
	away := func(addr string) bool { return !webguard.LoopbackAddress(addr) }
	if o.Password != "" && o.TLS == nil && slices.ContainsFunc(strings.Split(o.Addr, ","), away) {
		log.Warn("the password of --counter goes to Redis in the clear: give rediss://", "redis", o.Addr)
	}
	return rediscounter.Open(o)
}

// Options returns the options for the splits and merges of partitions. The parameter counted says whether the process
// counts the sizes of partitions. The parameter wait is the longest time of one wait within a split or merge.
func (f *Flags) Options(counted bool, wait time.Duration) balancer.Options {
	// A split waits two times before a new partition accepts writes.
	o := balancer.For(f.MaxRows, f.MoveRate, f.Interval(counted), wait)
	if f.MinRows != nil {
		o.Policy.MinRows = *f.MinRows
	}
	o.Policy.Cool = f.Cool
	o.Policy.MaxBytes = f.MaxBytes
	o.Policy.LoadPerS, o.Policy.LoadShare = f.LoadPerS, f.LoadShare
	if f.MoveRows > 0 {
		o.Policy.Budget.Rows = f.MoveRows
	}
	o.Policy.Budget.Hours, _ = f.hours() // they were validated
	o.Policy.Planner = f.Planner
	if s, _ := f.schedule(); s != nil {
		o.Next = func(t time.Time) time.Time { return s.Next(t.UTC()) }
	}
	return o
}

// hours parses the flag --move-hours, the times of day such as 22:00-06:00 at which partitions may be split and merged.
func (f *Flags) hours() (out []policy.Hours, err error) {
	for _, s := range f.MoveHours {
		from, to, ok := strings.Cut(s, "-")
		a, err1 := time.Parse("15:04", from)
		b, err2 := time.Parse("15:04", to)
		if !ok || err1 != nil || err2 != nil {
			return nil, fmt.Errorf("--move-hours: %q is not like 22:00-06:00", s)
		}
		since := func(t time.Time) time.Duration {
			return time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute
		}
		out = append(out, policy.Hours{From: since(a), To: since(b)})
	}
	return out, nil
}
