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
	// leastRequests and mostRequests bound the default of --request-memory-mib.
	leastRequests, mostRequests = 32, 128
	// memTablesMiB is for the memtables of the embedded store, otherMiB for connections and Go's runtime.
	memTablesMiB = 192
	otherMiB     = 152
	// mapEighths of --map-cache-mib are what is cached by it: nodes of maps by 8, roots by 4, names by less than 1.
	mapEighths = 13
)

// requestMemory is --request-memory-mib, or its default: an eighth of the memory.
func (s *serveCmd) requestMemory(machine int64) int64 {
	if s.RequestMemoryMiB > 0 {
		return s.RequestMemoryMiB * mib
	}
	return min(max(machine/8, leastRequests*mib), mostRequests*mib)
}

// limitMemory sets Go's memory limit, unless the environment has: without it the heap may grow
// to twice the live memory.
func (s *serveCmd) limitMemory(requests int64) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit((s.CacheMiB+s.MapCacheMiB*mapEighths/8+memTablesMiB+otherMiB)*mib + requests)
	}
}

// machineMemory is the memory of the machine or of the process's control group, in bytes, or a
// very large number if unknown.
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
