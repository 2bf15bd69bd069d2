package cassandratest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/internal/test/child"
)

// ErrNoNetworks is the error if data centres cannot be put into networks of their own on this machine (see
// Options.Apart).
var ErrNoNetworks = errors.New("no network namespaces with a link between them can be made here: " +
	"they need Linux, root, the package iproute2 and the device /dev/net/tun")

// network is the network namespace of a data centre. It has the addresses of the data centre's nodes, a connection to
// the machine, and one end of a Link. The namespace and its devices exist as long as the process holder, so nothing
// remains however the test ends.
type network struct {
	subnet  string // of the data centre, for routes
	machine string // the machine's address in it
	nodes   []string

	holder *os.Process
	exited <-chan struct{}
}

// maxNodes is the largest number of nodes of a data centre that is apart. Its subnet has 64 addresses.
const maxNodes = 32

// newNetworks creates a network for each of two data centres, and the link between the networks. nodes has the number
// of nodes of each data centre. Packets can only go to the machine and over the link.
func newNetworks(ctx context.Context, nodes []int) (made []*network, l *Link, err error) {
	if len(nodes) != 2 || slices.Min(nodes) < 1 || slices.Max(nodes) > maxNodes {
		return nil, nil, fmt.Errorf("data centres apart: two of 1 to %d nodes each, not %v", maxNodes, nodes)
	}
	defer func() {
		if err != nil {
			closeNetworks(made, l)
		}
	}()
	block := fmt.Sprintf("10.%d.%d", 1+rand.IntN(254), rand.IntN(256))
	name := fmt.Sprintf("evk%05x", rand.IntN(1<<20))
	for i, count := range nodes {
		const size = 64
		n := &network{subnet: fmt.Sprintf("%s.%d/26", block, size*i), machine: fmt.Sprintf("%s.%d", block, size*i+1)}
		for k := range count {
			n.nodes = append(n.nodes, fmt.Sprintf("%s.%d", block, size*i+2+k))
		}
		if err := n.hold(ctx); err != nil {
			return made, nil, fmt.Errorf("%w (%w)", ErrNoNetworks, err)
		}
		made = append(made, n)
		here, there := fmt.Sprint(name, i), fmt.Sprint(name, i, "n")
		for _, args := range []string{
			fmt.Sprintf("link add %s type veth peer name %s netns %d", here, there, n.holder.Pid),
			fmt.Sprintf("addr add %s/26 dev %s", n.machine, here),
			fmt.Sprintf("link set %s up", here),
		} {
			if err := ip(ctx, nil, args); err != nil {
				return made, nil, fmt.Errorf("%w (%w)", ErrNoNetworks, err)
			}
		}
		commands := []string{"link set lo up"}
		for _, node := range n.nodes {
			commands = append(commands, fmt.Sprintf("addr add %s/26 dev %s", node, there))
		}
		for _, args := range append(commands, fmt.Sprintf("link set %s up", there)) {
			if err := ip(ctx, n, args); err != nil {
				return made, nil, err
			}
		}
	}
	if l, err = newLink(made); err != nil {
		return made, nil, fmt.Errorf("%w (%w)", ErrNoNetworks, err)
	}
	for i, n := range made {
		for _, args := range []string{
			// Large packets cost the relay less.
			"link set " + far + " mtu 16000 up",
			fmt.Sprintf("route add %s dev %s src %s", made[1-i].subnet, far, n.nodes[0]),
		} {
			if err := ip(ctx, n, args); err != nil {
				return made, l, err
			}
		}
	}
	return made, l, nil
}

func closeNetworks(networks []*network, l *Link) {
	if l != nil {
		l.Close()
	}
	for _, n := range networks {
		n.close()
	}
}

// path returns the path of the file that names the network namespace.
func (n *network) path() string { return fmt.Sprintf("/proc/%d/ns/net", n.holder.Pid) }

// hold starts the process that keeps the network namespace.
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

// enter returns the beginning of a command line that runs a command inside the network.
func (n *network) enter() []string { return []string{"nsenter", "--net=" + n.path()} }

// command returns a command that runs inside the network. If n is nil, the command runs in the network of the machine.
func (n *network) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	if n == nil {
		return exec.CommandContext(ctx, name, args...)
	}
	line := append(append(n.enter(), name), args...)
	return exec.CommandContext(ctx, line[0], line[1:]...)
}

// ip runs the command ip of iproute2 inside the network n, or in the network of the machine if n is nil.
func ip(ctx context.Context, n *network, args string) error {
	if out, err := n.command(ctx, "ip", strings.Fields(args)...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", args, err, strings.TrimSpace(string(out)))
	}
	return nil
}
