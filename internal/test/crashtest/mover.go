package crashtest

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/evenkeel/evenkeel/internal/cells"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// Mover completes the work on two buckets: one whose ranges move, and one that was left behind. If a Mover is killed,
// another Mover with the same Notes continues.
type Mover struct {
	Store executor.Store
	Maps  *mapclient.Client
	// Loss makes the store lose answers.
	Loss *Loss
	// Bucket is the bucket whose ranges move, as the goals of each round say. The rounds follow each other.
	Bucket store.BucketID
	Rounds [][]move.Goal
	// Left is the bucket that was left behind, or zero.
	Left store.BucketID
	// Keys are entries of Bucket that clients do not change, in ascending order. Late deletes remove some of them.
	Keys [][]byte
	// Notes records what has been done.
	Notes Notes
	// Point is the failpoint at which the Mover kills itself, with the number of times that the failpoint is passed,
	// e.g. "copy batch#2". If Point is empty, the Mover lives.
	Point string
	// Options are the options of the executors of moves, except for Failpoint.
	Options executor.Options

	mu   sync.Mutex
	left int          // passes until it dies
	lost map[int]bool // rounds whose swap was lost
	gone map[int]bool // rounds in which a row was deleted while its copy was on its way
}

// Run moves ranges and cleans up until nothing is left to do, or until the process kills itself at Point.
func (m *Mover) Run(ctx context.Context) error {
	name, times, _ := strings.Cut(m.Point, "#")
	m.left, _ = strconv.Atoi(times)
	m.lost, m.gone = map[int]bool{}, map[int]bool{}
	known := map[string]bool{}
	for _, p := range Failpoints() {
		known[p] = true
	}
	die := func(at string) error {
		if !known[at] {
			return fmt.Errorf("crashtest.Failpoints lacks %q", at)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if at == name {
			if m.left--; m.left == 0 {
				if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
					return err
				}
				select {} // not one step further
			}
		}
		return nil
	}
	o := m.Options
	round := len(m.Notes.Of("round"))
	o.Failpoint = func(ctx context.Context, at, detail string) error {
		if err := m.disturb(ctx, round, at, detail); err != nil {
			return err
		}
		return die(at)
	}
	x := executor.New(m.Store, m.Maps, m.Bucket, o)
	for ; round < len(m.Rounds); round++ {
		x.Add(m.Rounds[round]...)
		if err := x.Run(ctx); err != nil {
			return err
		}
		if err := m.Notes.Add("round", "over"); err != nil {
			return err
		}
	}
	if m.Left == (store.BucketID{}) {
		return nil
	}
	o.Failpoint = func(_ context.Context, at, _ string) error { return die(at) }
	o.CollectAfter = time.Nanosecond
	y := executor.New(m.Store, m.Maps, m.Left, o)
	if err := y.Run(ctx); err != nil {
		return err
	}
	for range 2 { // it has to find them twice
		if _, _, err := y.Collect(ctx); err != nil {
			return err
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// disturb does at a failpoint what other processes, or the network, do at that time: answers are lost, and late writes
// come.
func (m *Mover) disturb(ctx context.Context, round int, at, detail string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch at {
	case "before swap copying":
		m.Loss.Begin(m.Bucket, true)
	case "before swap verifying":
		if !m.lost[round] {
			m.lost[round] = true
			m.Loss.Begin(m.Bucket, false)
		}
	case "swap unknown":
		m.Loss.End()
	case "before copy":
		if len(m.Notes.Of("closed")) > 0 {
			return nil
		}
		if err := leaveClosing(ctx, m.Maps, m.Bucket); err != nil {
			return err
		}
		return m.Notes.Add("closed", "once")
	case "copy batch":
		if m.gone[round] {
			return nil
		}
		gone, err := m.overtake(ctx, []byte(detail))
		m.gone[round] = gone
		return err
	case "before compare":
		return m.late(ctx, detail)
	}
	return nil
}

// overtake deletes an old entry of a batch that is about to be copied. The delete is a plain one in the source of the
// move, like a delete that began before the move and comes late. The result is true if such an entry existed.
func (m *Mover) overtake(ctx context.Context, first []byte) (bool, error) {
	root, err := m.Maps.Load(ctx, m.Bucket)
	if err != nil {
		return false, err
	}
	for rg, err := range m.Maps.Ranges(ctx, root, first) {
		if err != nil {
			return false, err
		}
		taken := m.Notes.Of("late")
		for _, old := range m.Keys {
			line := "delete " + string(old)
			if string(old) < string(first) || !rg.Contains(old) || slices.Contains(taken, line) {
				continue
			}
			p := store.Partition{Bucket: m.Bucket, ID: rg.Partition}
			if err := m.Store.Delete(ctx, p, old, store.Timestamp(time.Now().UnixMicro())); err != nil {
				return false, err
			}
			return true, m.Notes.Add("late", line)
		}
		break
	}
	return false, nil
}

// late puts a new entry, and deletes an old one, in the source of the range that is about to be compared with its copy.
// Each range gets the late writes once.
func (m *Mover) late(ctx context.Context, detail string) error {
	root, err := m.Maps.Load(ctx, m.Bucket)
	if err != nil {
		return err
	}
	for rg, err := range m.Maps.Ranges(ctx, root, nil) {
		if err != nil {
			return err
		}
		if detail != fmt.Sprintf("compare %d %q", rg.Batch, rg.Start) {
			continue
		}
		k := fmt.Appendf(nil, "%s!late-%d", rg.Start, rg.Batch)
		taken := map[string]bool{}
		for _, line := range m.Notes.Of("late") {
			taken[line] = true
		}
		if taken["put "+string(k)] {
			return nil
		}
		now := store.Timestamp(time.Now().UnixMicro())
		rows := []store.Row{{Key: k, Value: store.EntryCell([]byte("late")), Timestamp: now}}
		lines := []string{"put " + string(k)}
		for _, old := range m.Keys {
			if rg.Contains(old) && !taken["delete "+string(old)] {
				rows = append(rows, store.Row{Key: old, Value: cells.Marker(), Timestamp: now})
				lines = append(lines, "delete "+string(old))
				break
			}
		}
		if err := m.Store.Put(ctx, store.Partition{Bucket: m.Bucket, ID: rg.Partition}, rows...); err != nil {
			return err
		}
		return m.Notes.Add("late", lines...)
	}
	return store.Errorf(store.InvalidArgument, "no range is compared by %q", detail)
}

// Leave changes a bucket as if processes had left it behind. The bucket is closing, as a process that wanted to delete
// it died an hour ago, and the store has a few map nodes that no root names. The map must be large enough to have nodes
// (some 200 ranges).
func Leave(ctx context.Context, m *mapclient.Client, id store.BucketID) error {
	for range 4 {
		root, err := m.Load(ctx, id)
		if err != nil {
			return err
		}
		if root.Height == 0 {
			return store.Errorf(store.InvalidArgument, "the map of bucket %s has no nodes: it needs more ranges", id)
		}
		var last partmap.Range
		for rg, err := range m.Ranges(ctx, root, nil) {
			if err != nil {
				return err
			}
			last = rg
		}
		e := m.Edit(ctx, root)
		last.PinUntil++ // anything that makes a new node
		if err := e.Replace(last.Start, nil, []partmap.Entry{last.Entry}); err != nil {
			return err
		}
		change, err := e.Change()
		if err != nil {
			return err
		}
		if err := m.Swap(ctx, change); err != nil {
			return err
		}
	}
	return leaveClosing(ctx, m, id)
}

// leaveClosing begins to delete a bucket, an hour in the past, and does nothing further.
func leaveClosing(ctx context.Context, m *mapclient.Client, id store.BucketID) error {
	root, err := m.Load(ctx, id)
	if err != nil || root.State != partmap.Open {
		return err
	}
	s := m.Stamp()
	s.Now = s.Now.Add(-time.Hour)
	change, err := mapclient.WithState(root, partmap.Closing, s)
	if err != nil {
		return err
	}
	return m.Swap(ctx, change)
}
