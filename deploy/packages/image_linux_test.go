package main

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The root of the image is all that its programs need: they run in it as its file says.
func TestImageRuns(t *testing.T) {
	own := newNetwork(t)
	image := filepath.Join(built(t), "container")
	spec := instructions(t, filepath.Join(image, "Containerfile"))
	root := t.TempDir()
	require.NoError(t, os.Chmod(root, 0o755))
	output(t, "tar", "-C", root, "--numeric-owner", "--same-permissions", "-xf", filepath.Join(image, "rootfs.tar"))
	command := func(line []string) *exec.Cmd {
		return &exec.Cmd{
			Path: line[0], Args: line, Env: spec["ENV"], Dir: spec["WORKDIR"][0],
			SysProcAttr: &syscall.SysProcAttr{
				Chroot: root, Credential: &syscall.Credential{Uid: imageUser, Gid: imageUser},
			},
		}
	}
	health := words(t, regexp.MustCompile(`CMD (\[.*)`).FindStringSubmatch(spec["HEALTHCHECK"][0])[1])
	out, err := own.output(command(health))
	require.Error(t, err, "nothing runs yet: %s", out)

	manager, err := net.ListenPacket("unixgram", filepath.Join(root, "var/lib/evenkeel/manager"))
	require.NoError(t, err)
	defer manager.Close()
	require.NoError(t, os.Chmod(filepath.Join(root, "var/lib/evenkeel/manager"), 0o666))
	told := func() string {
		require.NoError(t, manager.SetReadDeadline(time.Now().Add(time.Minute)))
		text := make([]byte, 100)
		n, _, err := manager.ReadFrom(text)
		require.NoError(t, err)
		return string(text[:n])
	}
	server := command(append(words(t, spec["ENTRYPOINT"][0]), words(t, spec["CMD"][0])...))
	server.Env = append(server.Env, "NOTIFY_SOCKET=/var/lib/evenkeel/manager")
	lines, err := server.StdoutPipe()
	require.NoError(t, err)
	server.Stderr = os.Stderr
	ended := own.start(t, server)
	first, err := bufio.NewReader(lines).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "S3 on http://127.0.0.1:9000\n", first)
	require.Equal(t, "READY=1", told())
	out, err = own.output(command(health))
	require.NoError(t, err, out)
	out, err = own.output(command(strings.Fields("/usr/bin/listd bucket create photos")))
	require.NoError(t, err, out)
	require.DirExists(t, filepath.Join(root, "var/lib/evenkeel/data"))

	require.NoError(t, server.Process.Signal(syscall.SIGTERM))
	require.Equal(t, "STOPPING=1", told())
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("the server does not end")
	}
	require.Zero(t, server.ProcessState.ExitCode())
}
