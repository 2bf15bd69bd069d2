package apart

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// starts has many processes start at once over a store that others have agreed on: a fleet after
// an upgrade, or a power cut. All succeed.
func (b *bed) starts(t *testing.T) {
	const check, programs = "starts", 5
	b.send(t, crew{Do: "starts", Processes: 1}) // the first ones of all
	b.cluster.Link.SetDistance(b.distance)
	when := fmt.Sprintf("%d + %d at once", b.many, b.many)
	all := b.send(t, crew{Do: "starts", Processes: b.many})
	b.count(check, when, all)
	var took []time.Duration
	var errs []string
	for _, of := range all {
		took = append(took, of.Took...)
		errs = append(errs, of.Errs...)
	}
	b.report.add(check, when+": joined", float64(len(took)), "")
	b.report.took(check, when+": time to join", took)
	if len(errs) > 0 {
		t.Errorf("%d of %d processes did not start, such as: %s", len(errs), 2*b.many, errs[0])
	}

	when = fmt.Sprintf("%d + %d listd at once", programs, programs)
	begun := time.Now()
	var mu sync.Mutex
	var g sync.WaitGroup
	started := 0
	for n := range 2 * programs {
		g.Go(func() {
			_, err := b.start(t, b.sites[n%2])
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
				return
			}
			started++
		})
	}
	g.Wait()
	b.report.add(check, when+": started", float64(started), "")
	b.report.add(check, when+": time until the last one has started", time.Since(begun).Seconds(), "s")
}

// startsCut starts a server in each data centre while neither reaches the other: all was agreed on
// before, so it serves what is in reach.
func (b *bed) startsCut(t *testing.T) {
	const check, bucket = "starts", "startscut"
	first := b.serve(t, b.sites[0])
	b.bucket(t, first, bucket)
	fill(t, first, bucket)
	first.kill()
	b.cluster.Link.Cut()
	for _, at := range b.sites {
		begun := time.Now()
		s, err := b.start(t, at)
		if err != nil {
			b.report.add(check, "link cut: a listd that starts in "+at.name, 0, "")
			t.Error(err)
			continue
		}
		b.report.add(check, "link cut: a listd that starts in "+at.name, 1, "")
		b.report.add(check, "link cut: time to start in "+at.name, time.Since(begun).Seconds(), "s")
		key := "key-while-cut-" + at.name
		require.NoError(t, s.put(t.Context(), bucket, key))
		require.NoError(t, s.get(t.Context(), bucket, key))
		require.NoError(t, s.get(t.Context(), bucket, filledKey(0)))
	}
}
