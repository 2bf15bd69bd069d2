package cassandratest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"

	"github.com/evenkeel/evenkeel/internal/test/child"
)

// ErrNoNetworks says that data centres can't be put into networks of their own
// here (Options.Apart).
var ErrNoNetworks = errors.New("no network namespaces can be made here: they need Linux, root and the package iproute2")

// network is the network namespace of a data centre's node: one link to the
// machine, for clients, and one to each other data centre. It lives as long as the
// process that holds it; its links go with it, so nothing stays behind however
// the test ends.
type network struct {
	outside string // the node's address for clients
	between string // its address for other nodes

	holder *os.Process
	exited <-chan struct{}
}

// newNetworks makes a network for each data centre, and the links.
func newNetworks(ctx context.Context, nodes []int) (made []*network, err error) {
	if len(nodes) != 2 || nodes[0] != 1 || nodes[1] != 1 {
		return nil, fmt.Errorf("data centres apart: two of one node each, not %v", nodes)
	}
	defer func() {
		if err != nil {
			for _, n := range made {
				n.close()
			}
		}
	}()
	// 10.x.y.0/25 is between the nodes; a /30 above it is between each node and the
	// machine.
	block := fmt.Sprintf("10.%d.%d", 1+rand.IntN(254), rand.IntN(256))
	name := fmt.Sprintf("evk%05x", rand.IntN(1<<20))
	for i := range nodes {
		n := &network{outside: fmt.Sprintf("%s.%d", block, 129+4*i), between: fmt.Sprintf("%s.%d", block, 1+i)}
		if err := n.hold(ctx); err != nil {
			return made, fmt.Errorf("%w (%w)", ErrNoNetworks, err)
		}
		made = append(made, n)
		here, there := fmt.Sprint(name, i), fmt.Sprint(name, i, "n")
		for _, args := range []string{
			fmt.Sprintf("link add %s type veth peer name %s netns %d", here, there, n.holder.Pid),
			fmt.Sprintf("addr add %s.%d/30 dev %s", block, 130+4*i, here),
			fmt.Sprintf("link set %s up", here),
		} {
			if err := ip(ctx, nil, args); err != nil {
				return made, fmt.Errorf("%w (%w)", ErrNoNetworks, err)
			}
		}
		for _, args := range []string{
			"link set lo up",
			fmt.Sprintf("addr add %s/30 dev %s", n.outside, there),
			fmt.Sprintf("link set %s up", there),
		} {
			if err := ip(ctx, n, args); err != nil {
				return made, err
			}
		}
	}
	if err := ip(ctx, made[0],
		fmt.Sprintf("link add %s type veth peer name %s netns %d", link, link, made[1].holder.Pid)); err != nil {
		return made, err
	}
	for _, n := range made {
		for _, args := range []string{fmt.Sprintf("addr add %s/25 dev %s", n.between, link),
			"link set " + link + " up"} {
			if err := ip(ctx, n, args); err != nil {
				return made, err
			}
		}
	}
	return made, nil
}

// link is the name of the link between data centres, in each of them.
const link = "evkbetween"

// hold starts the process that keeps the namespace.
func (n *network) hold(ctx context.Context) error {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "sleep", "infinity")
	var err error
	if cmd.SysProcAttr, err = inNewNetwork(); err != nil {
		return err
	}
	exited, err := child.Start(cmd)
	n.holder, n.exited = cmd.Process, exited
	return err
}

func (n *network) close() {
	if n.holder != nil {
		_ = n.holder.Kill()
		<-n.exited
	}
}

// command is a command within the network, or for none within the machine's.
func (n *network) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	if n == nil {
		return exec.CommandContext(ctx, name, args...)
	}
	return exec.CommandContext(ctx, "nsenter",
		append([]string{fmt.Sprintf("--net=/proc/%d/ns/net", n.holder.Pid), name}, args...)...)
}

// ip runs iproute2's ip within a network, or the machine's.
func ip(ctx context.Context, n *network, args string) error {
	if out, err := n.command(ctx, "ip", strings.Fields(args)...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", args, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Cut cuts the link between the data centres of a cluster that has them apart:
// what one sends to the other is lost without a word. Clients still reach both.
func (c *Cluster) Cut(ctx context.Context) error {
	return c.between(ctx, "neigh replace %s lladdr 02:00:00:00:00:99 nud permanent dev "+link)
}

// Mend undoes Cut.
func (c *Cluster) Mend(ctx context.Context) error {
	return c.between(ctx, "neigh del %s dev "+link)
}

func (c *Cluster) between(ctx context.Context, args string) error {
	if len(c.networks) == 0 {
		return errors.New("the cluster's data centres are not apart")
	}
	for i, n := range c.networks {
		if err := ip(ctx, n, fmt.Sprintf(args, c.networks[1-i].between)); err != nil {
			return err
		}
	}
	return nil
}
