package cassandratest

import (
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A connection between two data centres takes the length of the link for each answer, stands still
// while it is cut, and goes on when it is healed.
func TestLink(t *testing.T) {
	networks, l, err := newNetworks(t.Context(), []int{2, 1})
	if errors.Is(err, ErrNoNetworks) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { closeNetworks(networks, l) })

	var far net.Listener
	require.NoError(t, networks[1].within(func() (err error) {
		far, err = net.Listen("tcp", net.JoinHostPort(networks[1].nodes[0], "7"))
		return err
	}))
	defer far.Close()
	go echo(far)
	c := dial(t, networks[0], far.Addr().String())

	near := trips(t, c, 50)
	t.Logf("no distance: %v in the middle, %v at most", near[25], near[49])
	const distance = 80 * time.Millisecond
	l.SetDistance(distance)
	long := trips(t, c, 20)
	t.Logf("%v: %v at least, %v in the middle, %v at most", distance, long[0], long[10], long[19])
	require.GreaterOrEqual(t, long[0], distance)
	require.Less(t, long[0], distance*5/4, "the link is late")
	// A connection takes one trip, and its first answer another one.
	begun := time.Now()
	trips(t, dial(t, networks[0], far.Addr().String()), 1)
	require.GreaterOrEqual(t, time.Since(begun), 2*distance)

	l.Cut()
	answered := make(chan error, 1)
	go func() { answered <- trip(c) }()
	select {
	case err := <-answered:
		t.Fatal("there was an answer over a link that is cut, or an error:", err)
	case <-time.After(3 * distance):
	}
	l.Heal()
	require.NoError(t, <-answered, "TCP sends again what was lost")
	l.SetDistance(0)
	require.Less(t, trips(t, c, 20)[0], distance)
}

// Within a data centre the link counts for nothing, and the machine reaches both.
func TestLinkIsBetweenDataCentres(t *testing.T) {
	networks, l, err := newNetworks(t.Context(), []int{2, 1})
	if errors.Is(err, ErrNoNetworks) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { closeNetworks(networks, l) })
	l.Cut()
	var listeners []net.Listener
	for i, at := range []struct {
		network *network
		address string
	}{{networks[0], networks[0].nodes[1]}, {networks[1], networks[1].nodes[0]}} {
		require.NoError(t, at.network.within(func() error {
			listener, err := net.Listen("tcp", net.JoinHostPort(at.address, "7"))
			listeners = append(listeners, listener)
			return err
		}))
		defer listeners[i].Close()
		go echo(listeners[i])
	}
	trips(t, dial(t, networks[0], listeners[0].Addr().String()), 1)
	for _, listener := range listeners {
		c, err := net.DialTimeout("tcp", listener.Addr().String(), time.Minute)
		require.NoError(t, err)
		trips(t, c, 1)
		require.NoError(t, c.Close())
	}
}

func TestLine(t *testing.T) {
	noon := time.Unix(0, 0)
	var q line
	_, some := q.wait(noon)
	require.False(t, some)
	q.add([]byte("a"), noon.Add(3))
	q.add([]byte("b"), noon.Add(1)) // the link has become shorter
	first, some := q.wait(noon.Add(1))
	require.True(t, some)
	require.Equal(t, time.Duration(2), first)
	_, due := q.take(noon.Add(2))
	require.False(t, due, "a packet overtakes another one")
	for _, want := range []string{"a", "b"} {
		data, due := q.take(noon.Add(3))
		require.True(t, due)
		require.Equal(t, want, string(data))
	}
	large := make([]byte, lineBytes/2)
	for range 3 {
		q.add(large, noon)
	}
	require.Len(t, q.packets, 2)
	q.take(noon)
	q.add(large, noon)
	require.Len(t, q.packets, 2)
	require.Equal(t, lineBytes, q.bytes)
}

func TestLinkLoses(t *testing.T) {
	var l Link
	lost := func() (n int) {
		for range 1000 {
			if l.loses() {
				n++
			}
		}
		return n
	}
	require.Zero(t, lost())
	l.SetLoss(0.5)
	require.InDelta(t, 500, lost(), 250)
	l.SetLoss(1)
	require.Equal(t, 1000, lost())
	l.SetLoss(0)
	l.Cut()
	require.Equal(t, 1000, lost())
	l.Heal()
	require.Zero(t, lost())
}

// echo answers each connection with what it sends.
func echo(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			_, _ = io.Copy(c, c)
			_ = c.Close()
		}()
	}
}

func dial(t *testing.T, n *network, address string) (c net.Conn) {
	t.Helper()
	require.NoError(t, n.within(func() (err error) {
		c, err = net.DialTimeout("tcp", address, time.Minute)
		return err
	}))
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// trip sends a byte there and back.
func trip(c net.Conn) error {
	if _, err := c.Write([]byte{1}); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 1))
	return err
}

// trips measures n trips; the shortest comes first.
func trips(t *testing.T, c net.Conn, n int) (took []time.Duration) {
	t.Helper()
	for range n {
		begun := time.Now()
		require.NoError(t, trip(c))
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	return took
}
