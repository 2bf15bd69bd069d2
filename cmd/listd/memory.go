package main

import (
	"bufio"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

const (
	mib = 1 << 20
	// leastRequests and mostRequests are the smallest and the largest default of --request-memory-mib, in MiB.
	leastRequests, mostRequests = 32, 128
	// memTablesMiB is the memory, in MiB, for memtables of the embedded store. otherMiB is the memory for connections
	// and Go's runtime.
	memTablesMiB = 192
	otherMiB     = 152
	// mapEighths is the memory of the caches of maps, in eighths of --map-cache-mib: 8 for nodes, 4 for roots, and less
	// than 1 for names of buckets.
	mapEighths = 13
)

// requestMemory returns the memory, in bytes, that all requests together may take. The result is --request-memory-mib
// if the flag is set, or else an eighth of the machine's memory, but at least 32 and at most 128 MiB. machine is the
// machine's memory in bytes.
func (s *serveCmd) requestMemory(machine int64) int64 {
	if s.RequestMemoryMiB > 0 {
		return s.RequestMemoryMiB * mib
	}
	return min(max(machine/8, leastRequests*mib), mostRequests*mib)
}

// limitMemory sets the memory limit of the Go runtime. Without a limit the heap may grow to twice the memory in use.
// requests is the memory for requests in bytes, to which limitMemory adds the memory for caches and the store. If the
// environment variable GOMEMLIMIT is set, limitMemory does nothing.
func (s *serveCmd) limitMemory(requests int64) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit((s.CacheMiB+s.MapCacheMiB*mapEighths/8+memTablesMiB+otherMiB)*mib + requests)
	}
}

// machineMemory returns the memory of the machine in bytes, or the limit of the process's control group if the limit is
// lower. If both are unknown, the result is 1 PiB. root is "/", or another directory in tests.
func machineMemory(root string) int64 {
	most := int64(1) << 50
	if f, err := os.Open(path.Join(root, "proc/meminfo")); err == nil {
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if fields := strings.Fields(lines.Text()); len(fields) == 3 && fields[0] == "MemTotal:" {
				if kib, err := strconv.ParseInt(fields[1], 10, 64); err == nil && kib > 0 {
					most = min(most, kib<<10)
				}
			}
		}
	}
	limit := func(file string) {
		text, err := os.ReadFile(path.Join(root, file))
		if err != nil {
			return
		}
		// "max" is no limit.
		if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n > 0 {
			most = min(most, n)
		}
	}
	limit("sys/fs/cgroup/memory/memory.limit_in_bytes")
	groups, _ := os.ReadFile(path.Join(root, "proc/self/cgroup"))
	for line := range strings.Lines(string(groups)) {
		group, unified := strings.CutPrefix(strings.TrimSpace(line), "0::")
		for unified {
			limit(path.Join("sys/fs/cgroup", group, "memory.max"))
			if group == "/" || group == "." || group == "" {
				break
			}
			group = path.Dir(group)
		}
	}
	return most
}
