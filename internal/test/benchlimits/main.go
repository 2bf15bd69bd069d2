// Command benchlimits measures what the limits of the server listd cost an honest client. It builds listd of an older
// commit and of the present source tree, runs both side by side, each with a new data directory, and measures puts and
// pages through HTTP in turns.
//
//	go run ./internal/test/benchlimits -before COMMIT [-rounds 41] [-json FILE]
//
// A ratio is the present time divided by the time of the older commit, in one round. The two measurements of a round
// directly follow each other, in alternating order. The table has the median of the rounds' ratios, their middle half,
// and the ratio of the processor time that the servers took in all rounds (Linux). Other work on the machine affects
// the processor time less.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/test/child"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	before := flag.String("before", "", "commit to compare the present tree with")
	rounds := flag.Int("rounds", 41, "rounds of each measurement")
	file := flag.String("json", "", "file to write the figures to, too")
	flag.Parse()
	if *before == "" || *rounds < 1 || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(ctx, *before, *rounds, *file, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "benchlimits:", err)
		os.Exit(1)
	}
}

// Report holds all figures of a run, as the flag -json writes them.
type Report struct {
	Before       string        `json:"before"` // commits
	Present      string        `json:"present"`
	Rounds       int           `json:"rounds"`
	Measurements []Measurement `json:"measurements"`
}

// Measurement is one line of the table: the time of one put or page, in seconds, with the older and the present listd.
type Measurement struct {
	Name    string  `json:"name"`
	Before  float64 `json:"before_median_s"`
	Present float64 `json:"present_median_s"`
	Ratio   float64 `json:"ratio_median"`
	Low     float64 `json:"ratio_lower_quartile"`
	High    float64 `json:"ratio_upper_quartile"`
	Work    float64 `json:"processor_time_ratio"` // 0: not known
	Ratios  Ratios  `json:"ratios"`
}

// Ratios are the ratios of the present time to the older one, one for each round.
type Ratios []float64

const (
	pageRows  = 1000
	puts1     = 60  // of one worker in a round
	puts16    = 960 // of sixteen
	pages     = 100
	benchKeys = 20 * pageRows
)

func run(ctx context.Context, before string, rounds int, file string, out io.Writer) error {
	dir, err := os.MkdirTemp("", "evenkeel-benchlimits-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	r := Report{Rounds: rounds}
	old := filepath.Join(dir, "before")
	if r.Before, err = checkOut(ctx, before, old); err != nil {
		return err
	}
	defer func() {
		_ = exec.Command("git", "worktree", "remove", "--force", old).Run()
	}()
	if r.Present, err = output(ctx, "", "git", "describe", "--always", "--dirty", "--abbrev=12"); err != nil {
		return err
	}
	var servers [2]*server
	for i, tree := range []string{old, "."} {
		program := filepath.Join(dir, fmt.Sprintf("listd-%d", i))
		if _, err := output(ctx, tree, "go", "build", "-o", program, "./cmd/listd"); err != nil {
			return err
		}
		data := filepath.Join(dir, fmt.Sprintf("data-%d", i))
		s, err := serve(ctx, program, data)
		if err != nil {
			return err
		}
		err = s.fill(ctx)
		s.end()
		if err != nil {
			return err
		}
		// Anew: what was filled is in tables now, and not where it was written to.
		if s, err = serve(ctx, program, data); err != nil {
			return err
		}
		defer s.end()
		servers[i] = s
	}
	for _, m := range []struct {
		name string
		n    int
		f    func(s *server, ctx context.Context) error
	}{
		{"page of 1,000 entries", pages, (*server).pages},
		{"put, 1 worker", puts1, func(s *server, ctx context.Context) error { return s.puts(ctx, 1, puts1) }},
		{"put, 16 workers", puts16, func(s *server, ctx context.Context) error { return s.puts(ctx, 16, puts16) }},
	} {
		var times [2][]float64
		var ratios Ratios
		var work [2]float64
		for round := -2; round < rounds; round++ { // two to warm up
			var took [2]float64
			for turn := range 2 {
				i := (turn + round&1) % 2
				begun, worked := time.Now(), servers[i].processorTime()
				if err := m.f(servers[i], ctx); err != nil {
					return fmt.Errorf("%s: %w", m.name, err)
				}
				took[i] = time.Since(begun).Seconds() / float64(m.n)
				work[i] += servers[i].processorTime() - worked
			}
			if round >= 0 {
				times[0], times[1] = append(times[0], took[0]), append(times[1], took[1])
				ratios = append(ratios, took[1]/took[0])
			}
		}
		done := Measurement{
			Name: m.name, Before: at(times[0], 0.5), Present: at(times[1], 0.5), Ratio: at(ratios, 0.5),
			Low: at(ratios, 0.25), High: at(ratios, 0.75), Ratios: ratios,
		}
		if work[0] > 0 {
			done.Work = work[1] / work[0]
		}
		r.Measurements = append(r.Measurements, done)
	}
	return r.write(out, file)
}

// at returns the value below which the given share of all values lies, e.g. the median for 0.5.
func at(values []float64, share float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[int(share*float64(len(sorted)-1)+0.5)]
}

func (r *Report) write(out io.Writer, file string) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	const title = "through HTTP, embedded, %d rounds\t%.12s\t%s\tratio\tmiddle half\tprocessor time\n"
	fmt.Fprintf(w, title, r.Rounds, r.Before, r.Present)
	for _, m := range r.Measurements {
		const form = "%s\t%.3f ms\t%.3f ms\t%.3f\t%.3f to %.3f\t%.3f\n"
		fmt.Fprintf(w, form, m.Name, m.Before*1e3, m.Present*1e3, m.Ratio, m.Low, m.High, m.Work)
	}
	if err := w.Flush(); err != nil || file == "" {
		return err
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// checkOut creates a git worktree of a commit in dir, and returns the full name of the commit.
func checkOut(ctx context.Context, commit, dir string) (string, error) {
	name, err := output(ctx, "", "git", "rev-parse", "--verify", "--quiet", commit+"^{commit}")
	if err != nil {
		return "", fmt.Errorf("there is no commit %s here (a shallow clone lacks older ones: git fetch --unshallow)",
			commit)
	}
	_, err = output(ctx, "", "git", "worktree", "add", "--detach", dir, name)
	return name, err
}

// output runs a program in the directory dir, and returns what the program prints.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, errs.Bytes())
	}
	return strings.TrimSpace(string(out)), nil
}

// server is a running listd, with a client that sends requests to it.
type server struct {
	url    string
	cmd    *exec.Cmd
	ended  <-chan struct{}
	client *http.Client
	n      int // puts
}

// serve starts the listd at the path program, with default flags except for the addresses and the data directory.
func serve(ctx context.Context, program, data string) (*server, error) {
	s := &server{client: &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	s.cmd = exec.CommandContext(ctx, program, "serve", "--data", data, "--listen", "127.0.0.1:0", "--admin",
		"127.0.0.1:0")
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	var log bytes.Buffer
	s.cmd.Stdout, s.cmd.Stderr = write, &log
	s.ended, err = child.Start(s.cmd)
	_ = write.Close()
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(read)
	if lines.Scan() {
		s.url, _ = strings.CutPrefix(lines.Text(), "S3 on ")
	}
	if s.url == "" {
		s.end()
		return nil, fmt.Errorf("%s does not serve: %s", program, log.Bytes())
	}
	return s, nil
}

// end stops the server, and waits until its process has ended.
func (s *server) end() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	<-s.ended
}

// processorTime returns the processor time that the server has taken so far, in clock ticks, or 0 if the time is
// unknown.
func (s *server) processorTime() float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), ") ") // behind the program's name
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return user + system
}

// ask sends a request, and returns the length of the answer's body. A status other than 200 is an error.
func (s *server) ask(ctx context.Context, method, target, body string) (int64, error) {
	r, err := http.NewRequestWithContext(ctx, method, s.url+target, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	resp, err := s.client.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s", method, target, resp.Status)
	}
	return n, err
}

// fill creates the two buckets, and puts the keys that the measurement lists.
func (s *server) fill(ctx context.Context) error {
	for _, bucket := range []string{"/puts", "/pages"} {
		if _, err := s.ask(ctx, http.MethodPut, bucket, ""); err != nil {
			return err
		}
	}
	var g errgroup.Group
	g.SetLimit(64)
	for i := range benchKeys {
		g.Go(func() error {
			_, err := s.ask(ctx, http.MethodPut, fmt.Sprintf("/pages/2026/photos/%08d.jpg", i), "a value")
			return err
		})
	}
	return g.Wait()
}

// puts puts n new keys by several workers at once.
func (s *server) puts(ctx context.Context, workers, n int) error {
	var g errgroup.Group
	for w := range workers {
		g.Go(func() error {
			for i := w; i < n; i += workers {
				if _, err := s.ask(ctx, http.MethodPut, fmt.Sprintf("/puts/2026/photos/%08d.jpg", s.n+i),
					"a value"); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := g.Wait()
	s.n += n
	return err
}

var errShort = errors.New("a page is not full")

// pages reads 100 full pages of 1,000 entries.
func (s *server) pages(ctx context.Context) error {
	for i := range pages {
		after := i * 7919 % (benchKeys - pageRows - 1)
		n, err := s.ask(ctx, http.MethodGet, fmt.Sprintf("/pages?list-type=2&start-after=2026/photos/%08d.jpg", after),
			"")
		if err == nil && n < 200*pageRows {
			err = errShort
		}
		if err != nil {
			return err
		}
	}
	return nil
}
