package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/wait"
)

// cleaning deletes, now and then, what readers of buckets of objects do not see any more.
type cleaning struct {
	client  *listing.Client
	objects *objects.Objects
	every   time.Duration
	log     *slog.Logger
	done    *prometheus.CounterVec
	failed  prometheus.Counter
	// cleaners remember since when versions are burned.
	cleaners map[store.BucketID]*bucketCleaner
}

type bucketCleaner struct {
	*objects.Cleaner
	status objects.Status
}

func newCleaning(c *listing.Client, o *objects.Objects, every time.Duration, log *slog.Logger) *cleaning {
	return &cleaning{
		client: c, objects: o, every: every, log: log, cleaners: map[store.BucketID]*bucketCleaner{},
		done: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "evenkeel_objects_cleaned_total",
			Help: "Steps of the cleaner of buckets of objects: versions superseded, deleted for good, and others.",
		}, []string{"step"}),
		failed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "evenkeel_objects_cleaner_failures_total",
			Help: "Steps and passes of the cleaner of buckets of objects that failed; they are due again.",
		}),
	}
}

func (c *cleaning) register(r prometheus.Registerer) error {
	return errors.Join(r.Register(c.done), r.Register(c.failed))
}

// run cleans until ctx ends.
func (c *cleaning) run(ctx context.Context) {
	for wait.Sleep(ctx, c.every) == nil {
		if err := c.pass(ctx); err != nil && ctx.Err() == nil {
			c.failed.Inc()
			c.log.Warn("buckets of objects could not be cleaned; it is tried again", "error", err)
		}
	}
}

// pass cleans all buckets of objects once.
func (c *cleaning) pass(ctx context.Context) error {
	there := map[store.BucketID]bool{}
	var failures []error
	for info, err := range c.client.Buckets(ctx, "", "") {
		if err != nil {
			return err
		}
		there[info.ID] = true
		if err := c.bucket(ctx, info); err != nil && store.KindOf(err) != store.NotFound {
			failures = append(failures, err)
		}
	}
	for id := range c.cleaners {
		if !there[id] {
			delete(c.cleaners, id)
		}
	}
	return errors.Join(failures...)
}

func (c *cleaning) bucket(ctx context.Context, info listing.BucketInfo) error {
	status, err := c.objects.Status(ctx, info.Name)
	if errors.Is(err, objects.ErrPlain) {
		return nil
	}
	if err != nil {
		return err
	}
	cleaner := c.cleaners[info.ID]
	if cleaner == nil || cleaner.status != status {
		// Delete markers of a bucket that has had versions stay until they are deleted.
		made, err := c.objects.Bucket(info.Name, status != objects.Never).Cleaner(c.objects, objects.CleanOptions{})
		if err != nil {
			return err
		}
		cleaner = &bucketCleaner{made, status}
		c.cleaners[info.ID] = cleaner
	}
	did, err := cleaner.Pass(ctx)
	for step, n := range map[string]int64{
		"superseded": did.Superseded, "proven": did.Proven, "finished": did.Finished, "unmarked": did.Unmarked,
		"uploads_ended": did.Ended, "uploads_freed": did.Freed,
	} {
		c.done.WithLabelValues(step).Add(float64(n))
	}
	c.failed.Add(float64(did.Failed))
	if did.FirstFailure != nil && ctx.Err() == nil {
		c.log.Warn("some steps of cleaning failed; they are due again", "bucket", info.Name, "steps", did.Failed,
			"error", did.FirstFailure)
	}
	return err
}
