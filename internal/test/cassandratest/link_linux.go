package cassandratest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// far is the name of the link's network device in the network of each data centre.
const far = "evkfar"

// newLink creates a link between two networks, with a network device in each. The devices are not up yet.
func newLink(networks []*network) (*Link, error) {
	l := &Link{ends: [2]int{-1, -1}}
	for i, n := range networks {
		err := n.within(func() (err error) {
			l.ends[i], err = openTun()
			return err
		})
		if err != nil {
			l.Close()
			return nil, err
		}
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	l.closing = os.NewFile(uintptr(fd), "closing")
	l.carries.Go(func() { l.carry(l.ends[0], l.ends[1], fd) })
	l.carries.Go(func() { l.carry(l.ends[1], l.ends[0], fd) })
	return l, nil
}

// openTun creates the link's tun device in the network of the calling thread, and returns its file descriptor.
func openTun() (fd int, err error) {
	const device = "/dev/net/tun"
	fd, err = unix.Open(device, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("%s: %w (modprobe tun; containers need --device %[1]s)", device, err)
	}
	request, err := unix.NewIfreq(far)
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("making the device %s: %w", far, err)
	}
	return fd, nil
}

// Close ends the link, and removes its network devices.
func (l *Link) Close() {
	if l.closing != nil {
		_, _ = l.closing.Write(binary.NativeEndian.AppendUint64(nil, 1))
		l.carries.Wait()
		_ = l.closing.Close()
	}
	for _, fd := range l.ends {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// carry carries packets from one device to another until the file closing can be read. The three parameters are file
// descriptors. carry waits by a system call, as timers of Go come up to a millisecond late. Its thread has priority
// over other threads, as a delay of 40 ms would otherwise become 60 ms on a machine where nodes take all processors.
func (l *Link) carry(from, to, closing int) {
	runtime.LockOSThread() // and never unlocked: the thread ends with its priority
	// Where that is not allowed the link is less exact.
	_ = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 1}, 0)
	const atOnce = 64 // so that what is due does not wait for a flood to end
	var q line
	buffer := make([]byte, 1<<16)
	for {
		var patience *unix.Timespec
		if d, some := q.wait(time.Now()); some {
			t := unix.NsecToTimespec(int64(d))
			patience = &t
		}
		polled := []unix.PollFd{{Fd: int32(from), Events: unix.POLLIN}, {Fd: int32(closing), Events: unix.POLLIN}}
		_, err := unix.Ppoll(polled, patience, nil)
		if err != nil && !errors.Is(err, unix.EINTR) || polled[1].Revents != 0 ||
			polled[0].Revents&^unix.POLLIN != 0 { // its network has ended
			return
		}
		for range atOnce {
			n, err := unix.Read(from, buffer)
			if err != nil {
				break // there is none now, or the device is not up
			}
			if !l.loses() {
				q.add(buffer[:n], time.Now().Add(time.Duration(l.oneWay.Load())))
			}
		}
		for data, due := q.take(time.Now()); due; data, due = q.take(time.Now()) {
			if !l.cut.Load() {
				_, _ = unix.Write(to, data) // packets may be lost
			}
		}
	}
}
