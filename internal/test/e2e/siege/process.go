package siege

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// MiB is a unit of memory.
const MiB = 1 << 20

// Process is a program that runs, looked at from outside.
type Process struct {
	Pid   int
	Admin string // its admin address: http://host:port
	Token string // that the address asks for, if any
}

// Memory is the resident memory now, and the most that there ever was, in bytes.
func (p Process) Memory() (now, peak int64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		kib, _ := strconv.ParseInt(fields[1], 10, 64)
		switch fields[0] {
		case "VmRSS:":
			now = kib << 10
		case "VmHWM:":
			peak = kib << 10
		}
	}
	if now == 0 || peak == 0 {
		return 0, 0, fmt.Errorf("process %d: the kernel does not say how much memory it has", p.Pid)
	}
	return now, peak, nil
}

// Vitals are what a server has in use while nothing is asked of it.
type Vitals struct {
	Memory     int64 // resident
	Heap       int64 // live, after a collection
	Goroutines int
	Files      int
}

// Vitals collects garbage in the process and counts what is left.
func (p Process) Vitals() (v Vitals, err error) {
	if _, err := p.get("/debug/pprof/heap?gc=1"); err != nil {
		return v, err
	}
	metrics, err := p.metrics()
	if err != nil {
		return v, err
	}
	v.Goroutines, v.Heap = int(metrics["go_goroutines"]), int64(metrics["go_memstats_heap_alloc_bytes"])
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.Pid))
	if err != nil {
		return v, err
	}
	v.Files = len(files)
	v.Memory, _, err = p.Memory()
	return v, err
}

// metrics are those of the process, by their names.
func (p Process) metrics() (map[string]float64, error) {
	text, err := p.get("/metrics")
	if err != nil {
		return nil, err
	}
	all := map[string]float64{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name != "#" {
			all[name], _ = strconv.ParseFloat(value, 64)
		}
	}
	return all, nil
}

// Ready fails unless the process says that it can serve.
func (p Process) Ready() error {
	_, err := p.get("/readyz")
	return err
}

// adminClient leaves no connection behind that would count as one of the process.
var adminClient = &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}

func (p Process) get(path string) (string, error) {
	r, err := http.NewRequest(http.MethodGet, p.Admin+path, nil)
	if err != nil {
		return "", err
	}
	if p.Token != "" {
		r.Header.Set("Authorization", "Bearer "+p.Token)
	}
	resp, err := adminClient.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %d: %s", path, resp.StatusCode, body)
	}
	return string(body), err
}
