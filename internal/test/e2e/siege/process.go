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

// MiB is the number of bytes of a mebibyte.
const MiB = 1 << 20

// Process is a running program, as it can be examined from outside: by its process id and its admin address.
type Process struct {
	Pid   int
	Admin string // its admin address: http://host:port
	Token string // that the address asks for, if any
}

// Memory returns the resident memory of the process in bytes: the present memory, and the highest memory so far.
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

// Vitals are the resources that a server uses while it serves no requests, such as memory and open files.
type Vitals struct {
	Memory     int64 // resident
	Heap       int64 // live, after a collection
	Goroutines int
	Files      int
}

// Vitals makes the process collect garbage, and returns the resources that the process then uses.
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

// metrics returns the values of the metrics of the process, by their names.
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

// Ready returns an error if the process does not say, at /readyz, that it can serve.
func (p Process) Ready() error {
	_, err := p.get("/readyz")
	return err
}

// adminClient is the HTTP client for requests to the admin address. It leaves no connection open, since an open
// connection would count as a resource of the process.
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
