package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/daemon"
	"github.com/evenkeel/evenkeel/internal/daemon/secrecy"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap/mapclient"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
	"github.com/evenkeel/evenkeel/store/commontime"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

// backend is what a server serves: an open store, and the client over it.
type backend struct {
	store   store.Store
	buckets *listing.Client
	// counts is where sizes are counted, recorder tells it what is written; nil: nobody
	// counts.
	counts   counter.Backend
	recorder *counter.Recorder
	where    []any // of the log line that says what is served
}

// close ends the leases and what counts, then the store.
func (b *backend) close() error {
	if b.buckets != nil {
		b.buckets.Maps().Close()
	}
	var err error
	if b.recorder != nil {
		ctx, cancel := context.WithTimeout(context.Background(), lastCounts)
		defer cancel()
		_ = b.recorder.Close(ctx) // they are estimates: recounts make up for what is lost
		err = b.counts.Close()
	}
	return errors.Join(err, b.store.Close())
}

// lastCounts is how long the end waits for the last counts to be taken.
const lastCounts = 3 * time.Second

// count opens what counts sizes, in dir unless flags say otherwise.
func (s *serveCmd) count(b *backend, dir string, log *slog.Logger) error {
	if s.RebalanceInterval != nil && *s.RebalanceInterval == 0 {
		return nil
	}
	counts, err := s.OpenCounter(dir, log)
	if err != nil || counts == nil {
		return err
	}
	b.counts = counts
	b.recorder = counter.NewRecorder(counts, counter.RecorderOptions{Logger: log})
	return nil
}

// recorded is what a client tells of its writes.
func (b *backend) recorded() listing.Recorder {
	if b.recorder == nil {
		return nil
	}
	return b.recorder
}

// sizes is who tells a client how large partitions are.
func (b *backend) sizes() counter.Source {
	if b.counts == nil {
		return nil
	}
	return b.counts
}

// open opens the store that the flags choose; an embedded one keeps so many tables
// open.
func (s *serveCmd) open(ctx context.Context, tables int, log *slog.Logger) (*backend, error) {
	if len(s.Cassandra) > 0 {
		return s.openCassandra(ctx, log)
	}
	secrecy.WarnOfDirectory(log, "--data", s.Data)
	st, err := pebblestore.Open(s.Data, pebblestore.Options{
		CacheBytes: s.CacheMiB << 20, TombstoneGrace: s.TombstoneGrace, OpenTables: tables, Logger: log,
	})
	if err != nil {
		return nil, daemon.Exit(exitStore, err)
	}
	b := &backend{store: st, where: []any{"data", s.Data}}
	if err := s.count(b, filepath.Join(s.Data, "counters"), log); err != nil {
		return nil, daemon.Exit(exitStore, errors.Join(err, b.close()))
	}
	o := listing.Options{CacheBytes: s.MapCacheMiB << 20, Recorder: b.recorded(), Sizes: b.sizes()}
	if b.buckets, err = listing.NewEmbedded(st, o); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

// openTimeout bounds the start on Cassandra: the schema is looked at, and the map
// clocks are made where there are none.
const openTimeout = time.Minute

func (s *serveCmd) openCassandra(ctx context.Context, log *slog.Logger) (*backend, error) {
	o, err := s.Flags.Options(log)
	if err != nil {
		return nil, daemon.Exit(exitUsage, err)
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	st, err := cassandrastore.Open(ctx, o)
	if err != nil {
		return nil, daemon.Exit(exitStore, err)
	}
	b := &backend{store: st, where: []any{"cassandra", strings.Join(s.Cassandra, ","), "keyspace", s.Keyspace}}
	maps, err := mapclient.Join(ctx, st, mapclient.Options{
		CacheBytes: s.MapCacheMiB << 20, Lease: s.Lease, Clocks: s.Clocks, MaxClockSkew: s.MaxClockSkew,
	}, s.ChangeLease)
	if err != nil {
		if errors.Is(err, store.InvalidArgument) {
			err = fmt.Errorf("%w (--lease, --max-clock-skew; --change-lease)", err)
		}
		return nil, daemon.Exit(exitStore, errors.Join(err, b.close()))
	}
	if err := s.count(b, "", log); err != nil {
		maps.Close()
		return nil, daemon.Exit(exitStore, errors.Join(err, b.close()))
	}
	if b.buckets, err = listing.New(st, maps, listing.Options{Recorder: b.recorded(), Sizes: b.sizes()}); err != nil {
		maps.Close()
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

// The flags of one form of the store and their presets, which have to be those
// of serveCmd's tags: what was changed from them and has no effect is refused.
const (
	presetData           = "./evenkeel-data"
	presetCacheMiB       = 128
	presetTombstoneGrace = time.Hour
)

// validateStore refuses flags of the embedded store beside --cassandra and the
// other way round: whoever gives them expects something that will not be.
func (s *serveCmd) validateStore() error {
	var idle []string
	if len(s.Cassandra) == 0 {
		idle = s.Changed()
		if s.Lease != mapclient.DefaultLease {
			idle = append(idle, "--lease")
		}
		if s.ChangeLease {
			idle = append(idle, "--change-lease")
		}
		if s.Clocks != mapclient.DefaultClocks {
			idle = append(idle, "--clocks")
		}
		if s.MaxClockSkew != commontime.DefaultLimit {
			idle = append(idle, "--max-clock-skew")
		}
		if len(idle) > 0 {
			return fmt.Errorf("%s: only with --cassandra, which is not given", strings.Join(idle, ", "))
		}
		return nil
	}
	if s.Data != presetData {
		idle = append(idle, "--data")
	}
	if s.CacheMiB != presetCacheMiB {
		idle = append(idle, "--cache-mib")
	}
	if s.TombstoneGrace != presetTombstoneGrace {
		idle = append(idle, "--tombstone-grace")
	}
	switch {
	case len(idle) > 0:
		return fmt.Errorf("%s: only for the embedded store, not with --cassandra", strings.Join(idle, ", "))
	case s.LocalDC == "":
		return errors.New("--local-dc is missing: the data centre of this server, by the name that nodetool status shows")
	case s.Lease < mapclient.MinLease || s.Lease > mapclient.MaxLease:
		return fmt.Errorf("--lease is from %v to %v", mapclient.MinLease, mapclient.MaxLease)
	case s.Clocks < 1 || s.Clocks > mapclient.MaxClocks:
		return fmt.Errorf("--clocks is from 1 to %d", mapclient.MaxClocks)
	case s.MaxClockSkew < commontime.MinLimit:
		return fmt.Errorf("--max-clock-skew is at least %v", commontime.MinLimit)
	}
	return nil
}
