package siege

import (
	"context"
	"encoding/xml"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	// patience is the time limit of an operation, with all its repeated requests. After that time the operation counts
	// as not answered.
	patience = 15 * time.Second
	// retryPause is the pause between two attempts of an operation.
	retryPause = 50 * time.Millisecond
	// freshOne is the number of operations of which one is made over a connection of its own, like that of a client
	// that has just been started.
	freshOne = 10
)

// Honest is a client that uses a bucket while the server is attacked, and checks all answers. It begins operations at a
// steady rate, however long earlier ones take, and repeats requests that the server refuses for now. It knows the right
// answers, because the keys are its own, and each key is used by one actor at a time.
type Honest struct {
	Target *Target
	Key    Key
	Bucket string
	Rate   int // operations each second
	Seed   uint64

	kept, fresh *http.Client
	mu          sync.Mutex
	free        []*actor
	actors      int
	r           Report
}

// Report is what an honest client has seen: the times of its operations, and wrong answers.
type Report struct {
	// Took has the time of each operation, sorted. The time counts from the moment at which the operation was due to
	// its answer, with all attempts.
	Took []time.Duration
	// Again has the numbers of attempts that were refused or cut off, by the reason.
	Again map[string]int
	// Wrong has descriptions of wrong answers, and of operations without an answer.
	Wrong []string
}

// Percentile returns the time within which the share p of the operations was answered. For example, one operation in a
// hundred took longer than Percentile(0.99).
func (r *Report) Percentile(p float64) time.Duration {
	if len(r.Took) == 0 {
		return 0
	}
	return r.Took[min(int(float64(len(r.Took))*p), len(r.Took)-1)]
}

func (r *Report) String() string {
	const unit = 100 * time.Microsecond
	return fmt.Sprintf("%d operations, median %v, p99 %v, longest %v; sent again: %v; wrong: %d", len(r.Took),
		r.Percentile(0.5).Round(unit), r.Percentile(0.99).Round(unit), r.Percentile(1).
			Round(unit), r.Again, len(r.Wrong))
}

// actor is a part of an honest client that owns the keys below a prefix. It knows the values of these keys, and makes
// one operation at a time.
type actor struct {
	prefix string
	rnd    *rand.Rand
	n      int
	values map[string]string
	cursed bool // a write was cut off: it may still happen
}

// Run makes operations until ctx ends, waits until all of them are answered, and returns the report.
func (h *Honest) Run(ctx context.Context) *Report {
	h.kept, h.fresh = NewClient(false), NewClient(true)
	h.r = Report{Again: map[string]int{}}
	var all sync.WaitGroup
	begun := time.Now()
	for n := 0; ; n++ {
		due := begun.Add(time.Duration(n) * time.Second / time.Duration(h.Rate))
		if Pause(ctx, time.Until(due)); ctx.Err() != nil {
			break
		}
		all.Go(func() { h.one(due, n%freshOne == 0) })
	}
	all.Wait()
	h.kept.CloseIdleConnections()
	slices.Sort(h.r.Took)
	return &h.r
}

// one makes one operation, as an actor that is free. due is the time at which the operation was due. If fresh is true,
// it uses a new connection.
func (h *Honest) one(due time.Time, fresh bool) {
	h.mu.Lock()
	var a *actor
	if n := len(h.free); n > 0 {
		a, h.free = h.free[n-1], h.free[:n-1]
	} else {
		a = &actor{prefix: fmt.Sprintf("actor-%05d/", h.actors), values: map[string]string{}}
		a.rnd = rand.New(rand.NewPCG(h.Seed, uint64(h.actors)))
		h.actors++
	}
	h.mu.Unlock()
	client := h.kept
	if fresh {
		client = h.fresh
	}
	// The context is not that of the caller, so that an operation that has begun is completed.
	ctx, cancel := context.WithDeadline(context.Background(), due.Add(patience))
	defer cancel()
	wrong := h.operate(ctx, client, a)
	took := time.Since(due)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.r.Took = append(h.r.Took, took)
	if wrong != "" {
		h.r.Wrong = append(h.r.Wrong, wrong)
	} else if !a.cursed {
		h.free = append(h.free, a)
	}
}

// operate makes one random operation as the actor a. The result says what is wrong with the answer, or is "" if the
// answer is right.
func (h *Honest) operate(ctx context.Context, c *http.Client, a *actor) (wrong string) {
	key := fmt.Sprintf("%skey %d", a.prefix, a.rnd.IntN(8))
	target := "/" + h.Bucket + "/" + a.prefix + "key%20" + key[len(key)-1:]
	switch p := a.rnd.IntN(100); {
	case p < 45:
		a.n++
		value := fmt.Sprintf("%s %d", key, a.n)
		got, failed := h.try(ctx, c, a, http.MethodPut, target, value)
		if got == nil || got.Status != http.StatusOK {
			return describe("PUT", key, got, failed)
		}
		a.values[key] = value
	case p < 50:
		got, failed := h.try(ctx, c, a, http.MethodDelete, target, "")
		if got == nil || got.Status != http.StatusNoContent {
			return describe("DELETE", key, got, failed)
		}
		delete(a.values, key)
	case p < 54:
		got, failed := h.try(ctx, c, a, http.MethodGet, "/"+h.Bucket+"?list-type=2&prefix="+a.prefix, "")
		if got == nil || got.Status != http.StatusOK {
			return describe("LIST", a.prefix, got, failed)
		}
		var page struct{ Contents []struct{ Key string } }
		if err := xml.Unmarshal(got.Body, &page); err != nil {
			return describe("LIST", a.prefix, got, err)
		}
		var listed []string
		for _, c := range page.Contents {
			listed = append(listed, c.Key)
		}
		if want := slices.Sorted(maps.Keys(a.values)); !slices.Equal(want, listed) {
			return fmt.Sprintf("LIST %s: %q, not %q", a.prefix, listed, want)
		}
	default:
		got, failed := h.try(ctx, c, a, http.MethodGet, target, "")
		value, there := a.values[key]
		switch {
		case got == nil || there && got.Status != http.StatusOK || !there && got.Status != http.StatusNotFound:
			return describe("GET", key, got, failed) + fmt.Sprintf("; it is there: %v", there)
		case there && string(got.Body) != value:
			return fmt.Sprintf("GET %s: %q, not %q", key, got.Body, value)
		}
	}
	return ""
}

func describe(method, key string, got *Reply, err error) string {
	if got == nil {
		return fmt.Sprintf("%s %s: no answer: %v", method, key, err)
	}
	return fmt.Sprintf("%s %s: %d %.300s %v", method, key, got.Status, got.Body, err)
}

// try sends a request, again and again, until the server gives an answer other than "later". If ctx ends first, try
// returns an error.
func (h *Honest) try(ctx context.Context, c *http.Client, a *actor, method, target, body string) (*Reply, error) {
	for {
		got, err := h.Target.Ask(ctx, c, h.Key, method, target, []byte(body))
		var why string
		switch {
		case err != nil:
			why = "cut off"
			a.cursed = a.cursed || method != http.MethodGet
		case got.Status == http.StatusServiceUnavailable:
			why = http.StatusText(got.Status) + ": " + code(got.Body)
		default:
			return got, nil
		}
		h.mu.Lock()
		h.r.Again[why]++
		h.mu.Unlock()
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%s within %v: %v", why, patience, err)
		}
		Pause(ctx, retryPause)
	}
}

// code returns the error code of S3 in the body of an error answer.
func code(body []byte) string {
	var e struct{ Code string }
	_ = xml.Unmarshal(body, &e)
	return e.Code
}
