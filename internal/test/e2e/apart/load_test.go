package apart

import (
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/test/seed"
)

// kinds are the requests that workers send, in random order.
var kinds = []string{"put", "get", "list"}

// outcome is that of the requests of a kind through one server.
type outcome struct {
	took   []time.Duration // of those that succeeded
	failed []string
	keys   []string // that were put, and acknowledged
}

// load is what workers did through one server, by kind.
type load map[string]*outcome

// completed counts the requests that succeeded.
func (l load) completed() (n int) {
	for _, o := range l {
		n += len(o.took)
	}
	return n
}

// failed lists what failed.
func (l load) failed() (all []string) {
	for _, o := range l {
		all = append(all, o.failed...)
	}
	return all
}

// together returns what each server was asked in two loads, of which the first may be nil.
func together(a, b []load) []load {
	for i := range a {
		for kind, o := range b[i] {
			o.took = append(o.took, a[i][kind].took...)
			o.failed = append(o.failed, a[i][kind].failed...)
			o.keys = append(o.keys, a[i][kind].keys...)
		}
	}
	return b
}

// filled is the number of keys that fill puts, and page what a listing asks for.
const filled, page = 300, 100

// fill puts keys into a bucket for workers to get and list.
func fill(t *testing.T, s *server, bucket string) {
	t.Helper()
	var puts errgroup.Group
	puts.SetLimit(8)
	for i := range filled {
		puts.Go(func() error { return s.put(t.Context(), bucket, filledKey(i)) })
	}
	require.NoError(t, puts.Wait())
}

func filledKey(i int) string { return fmt.Sprintf("key-%06d", i) }

// busy is the mean pause between two requests of a worker that keep nodes busy; calm is one with which they wait for
// processors seldom, although six nodes share those of this machine.
const busy, calm = 20 * time.Millisecond, 150 * time.Millisecond

// work has workers send requests through each server for a while: requests of the kinds in `only`, or of all kinds. A
// request counts that began in that time, however long it takes. Kinds and pauses are random, so that no kind always
// runs beside what the other data centre does after a put. pause is the mean of the pauses.
func work(
	t *testing.T, servers []*server, bucket string, workers int, pause, d time.Duration, only ...string,
) []load {
	t.Helper()
	if len(only) == 0 {
		only = kinds
	}
	r := seed.New(t)
	run := r.Uint64()
	loads := make([]load, len(servers))
	var mu sync.Mutex
	var g sync.WaitGroup
	end := time.Now().Add(d)
	for i, s := range servers {
		loads[i] = load{}
		for _, kind := range kinds {
			loads[i][kind] = &outcome{}
		}
		for w := range workers {
			r := rand.New(rand.NewPCG(r.Uint64(), r.Uint64()))
			g.Go(func() {
				for n := 0; time.Now().Before(end); n++ {
					kind, key := only[r.IntN(len(only))], filledKey(r.IntN(filled))
					if kind == "put" {
						key = fmt.Sprintf("%s-%016x-%d-%06d", s.name, run, w, n)
					}
					begun := time.Now()
					err := s.do(t.Context(), kind, bucket, key)
					took := time.Since(begun)
					mu.Lock()
					o := loads[i][kind]
					switch {
					case err != nil:
						o.failed = append(o.failed, fmt.Sprintf("%s in %s after %v: %v", kind, s.name, took, err))
					case kind == "put":
						o.keys = append(o.keys, key)
						fallthrough
					default:
						o.took = append(o.took, took)
					}
					mu.Unlock()
					time.Sleep(time.Duration(r.ExpFloat64() * float64(pause)))
				}
			})
		}
	}
	g.Wait()
	return loads
}

func (s *server) do(ctx context.Context, kind, bucket, key string) error {
	switch kind {
	case "put":
		return s.put(ctx, bucket, key)
	case "get":
		return s.get(ctx, bucket, key)
	}
	keys, _, err := s.list(ctx, bucket, "")
	if err == nil && len(keys) != page {
		err = fmt.Errorf("a page of %d keys, not %d", len(keys), page)
	}
	return err
}

// put puts a key with itself as the value.
func (s *server) put(ctx context.Context, bucket, key string) error {
	_, err := s.request(ctx, http.MethodPut, s.s3+"/"+bucket+"/"+key, key)
	return err
}

// get gets a key that put has put.
func (s *server) get(ctx context.Context, bucket, key string) error {
	value, err := s.request(ctx, http.MethodGet, s.s3+"/"+bucket+"/"+key, "")
	if err == nil && value != key {
		err = fmt.Errorf("the value of %s is %q", key, value)
	}
	return err
}

// list returns a page, and the token of the next one.
func (s *server) list(ctx context.Context, bucket, token string) (keys []string, next string, err error) {
	query := url.Values{"list-type": {"2"}, "max-keys": {fmt.Sprint(page)}}
	if token != "" {
		query.Set("continuation-token", token)
	}
	body, err := s.request(ctx, http.MethodGet, s.s3+"/"+bucket+"?"+query.Encode(), "")
	if err != nil {
		return nil, "", err
	}
	var answer struct {
		Contents              []struct{ Key string }
		NextContinuationToken string
	}
	if err := xml.Unmarshal([]byte(body), &answer); err != nil {
		return nil, "", err
	}
	for _, c := range answer.Contents {
		keys = append(keys, c.Key)
	}
	return keys, answer.NextContinuationToken, nil
}

// all lists a bucket.
func (s *server) all(ctx context.Context, bucket string) (map[string]bool, error) {
	all := map[string]bool{}
	for token := ""; ; {
		keys, next, err := s.list(ctx, bucket, token)
		if err != nil {
			return nil, err
		}
		for _, key := range keys {
			all[key] = true
		}
		if token = next; token == "" {
			return all, nil
		}
	}
}

// request sends a request from within the server's data centre; answers of 300 and above are errors.
func (s *server) request(ctx context.Context, method, address, body string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= http.StatusMultipleChoices {
		err = &statusError{resp.StatusCode, string(text)}
	}
	return string(text), err
}

// statusError is an answer that says no.
type statusError struct {
	status int
	text   string
}

func (e *statusError) Error() string { return fmt.Sprintf("%d: %s", e.status, e.text) }

// missing are keys that a set lacks.
func missing(from map[string]bool, keys []string) (lacks []string) {
	for _, key := range keys {
		if !from[key] {
			lacks = append(lacks, key)
		}
	}
	return lacks
}

// tell adds the times of a load to the report.
func (b *bed) tell(check, when string, servers []*server, loads []load) {
	for i, s := range servers {
		for _, kind := range kinds {
			o := loads[i][kind]
			b.report.took(check, fmt.Sprintf("%s: %s in %s", when, kind, s.name), o.took)
		}
		b.report.add(check, fmt.Sprintf("%s: requests that failed in %s", when, s.name), float64(len(loads[i].failed())), "")
	}
}

// acknowledged are the keys that loads put.
func acknowledged(loads []load) (keys []string) {
	for _, l := range loads {
		for o := range maps.Values(l) {
			keys = append(keys, o.keys...)
		}
	}
	return keys
}
