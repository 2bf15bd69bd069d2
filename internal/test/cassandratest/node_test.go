package cassandratest

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestALogSaysWhichNodesAreUp(t *testing.T) {
	const log = `INFO  [main] 2026-11-21 10:00:00,100 StorageService.java:3320 - Node /127.1.1.1:7000 state jump to NORMAL
INFO  [GossipStage:1] 2026-11-21 10:00:01,000 Gossiper.java:1473 - InetAddress /127.1.1.2:7000 is now UP
INFO  [GossipStage:1] 2026-11-21 10:00:01,000 Gossiper.java:1473 - InetAddress /127.1.1.20:7000 is now UP
 a line without a time
INFO  [GossipTasks:1] 2026-11-21 10:00:09,000 Gossiper.java:1500 - InetAddress /127.1.1.2:7000 is now DOWN
INFO  [GossipStage:1] 2026-11-21 10:00:20,500 Gossiper.java:1473 - InetAddress /127.1.1.2:7000 is now UP
`
	at := func(seconds float64) time.Time {
		return time.Date(2026, 11, 21, 10, 0, 0, 0, time.Local).Add(time.Duration(seconds * float64(time.Second)))
	}
	upTo := func(line string) string { before, _, _ := strings.Cut(log, line); return before }
	require.True(t, saysUp(log, "127.1.1.2:7000", at(0)))
	require.True(t, saysUp(log, "127.1.1.2:7000", at(20.5006)), "the log knows milliseconds")
	require.False(t, saysUp(log, "127.1.1.2:7000", at(21)), "it was started again since")
	require.False(t, saysUp(upTo("INFO  [GossipStage:1] 2026-11-21 10:00:20"), "127.1.1.2:7000", at(0)), "it went down")
	require.True(t, saysUp(upTo("INFO  [GossipTasks"), "127.1.1.2:7000", at(0)))
	require.True(t, saysUp(log, "127.1.1.20:7000", at(0)))
	require.False(t, saysUp(log, "127.1.1.20:7000", at(2)))
	require.False(t, saysUp(log, "127.1.1.1:7000", at(0)), "nobody said so")
	require.False(t, saysUp("", "127.1.1.1:7000", at(0)))
}
