package attacks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/internal/test/child"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/internal/test/e2e/siege"
)

// Attackers are a process of their own: this binary, with an order in its environment.
// Work of theirs keeps neither the honest client nor its clock from theirs.

const orderVariable = "EVENKEEL_TEST_ATTACKERS"

// order is what attackers are told.
type order struct {
	Target  siege.Target
	Key     siege.Key
	Attacks []string
	Lasts   time.Duration
}

// score is what attackers say in the end.
type score struct {
	Sent     int64
	Statuses map[int]int // how many answers of each were read
}

func (s *score) String() string { return fmt.Sprintf("%d shots, answers: %v", s.Sent, s.Statuses) }

func TestMain(m *testing.M) {
	if text := os.Getenv(orderVariable); text != "" {
		if err := obey([]byte(text)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(harness.Run(m, nil))
}

// obey is the process of the attackers.
func obey(text []byte) error {
	var o order
	if err := json.Unmarshal(text, &o); err != nil {
		return err
	}
	// Attackers have machines of their own elsewhere: here they get what the server and
	// the honest client leave.
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, 10)
	ctx, cancel := context.WithTimeout(context.Background(), o.Lasts)
	defer cancel()
	g := &ground{Target: siege.NewTarget(&o.Target), key: o.Key}
	var all sync.WaitGroup
	for _, a := range slices.Concat(attacks, variations) {
		if slices.Contains(o.Attacks, a.name) {
			all.Go(func() { a.run(ctx, g) })
		}
	}
	all.Wait()
	var s score
	s.Sent, s.Statuses = g.Shots()
	return json.NewEncoder(os.Stdout).Encode(s)
}

// attackers starts a process that attacks for some time. The score is there when the
// process has ended.
func (g *ground) attackers(lasts time.Duration, attacks []*attack) (wait func() (*score, error), err error) {
	o := order{Target: *g.Target, Key: g.key, Lasts: lasts}
	for _, a := range attacks {
		o.Attacks = append(o.Attacks, a.name)
	}
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), orderVariable+"="+string(text))
	cmd.Stderr = os.Stderr
	var out harness.Log
	cmd.Stdout = &out
	ended, err := child.Start(cmd)
	if err != nil {
		return nil, err
	}
	return func() (*score, error) {
		select {
		case <-ended:
		case <-time.After(lasts + 30*time.Second):
			_ = cmd.Process.Kill()
			<-ended
			return nil, errors.New("the attackers did not end")
		}
		var s score
		if err := json.Unmarshal([]byte(out.String()), &s); err != nil {
			return nil, fmt.Errorf("attackers: %v: %q", cmd.ProcessState, out.String())
		}
		return &s, nil
	}, nil
}
