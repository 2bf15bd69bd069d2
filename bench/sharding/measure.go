package sharding

import (
	"context"
	"fmt"
	"math"
	"time"

	"golang.org/x/sync/errgroup"
)

// Options are the numbers of items, shards and repetitions of a measurement.
type Options struct {
	// Items is the number of items, and Shards the number of shards at first. The measurement then adds one shard.
	Items, Shards int
	// Seeds is the number of repetitions with other names, over which the mean and the spread are taken. LongSeeds is
	// the number of repetitions for consistent hashing with one replica, whose results vary very much.
	Seeds, LongSeeds int
	// Workers is the number of seeds that are measured at the same time. Times are measured before, by one worker
	// alone.
	Workers int
}

// Row is the result of measuring one way to assign items to shards.
type Row struct {
	Scheme
	// Seeds is the number of repetitions with other names.
	Seeds int `json:"seeds"`
	// StaysPercent is the percentage of items that stay on their shard when a shard is added.
	StaysPercent Spread `json:"stays_percent"`
	// Std is the standard deviation of the number of items per shard, after a shard was added.
	Std Spread `json:"std_items_per_shard"`
	// NanosPerItem is the time of one assignment in nanoseconds, including the hash of the item.
	NanosPerItem float64 `json:"ns_per_item"`
}

// Spread is a figure over several seeds: its mean, its lowest and its highest value.
type Spread struct {
	Mean float64 `json:"mean"`
	Min  float64 `json:"min"`
	Max  float64 `json:"max"`
}

// Check returns an error if an option is out of range.
func (o Options) Check() error {
	switch {
	case o.Shards < 1 || o.Shards > 60:
		return fmt.Errorf("%d shards: 1 to 60 can be compared", o.Shards)
	case o.Items < 4*o.Shards || o.Items > 100_000_000:
		return fmt.Errorf("%d items: 4 per shard at least, 100,000,000 at most", o.Items)
	case o.Seeds < 1 || o.LongSeeds < 1:
		return fmt.Errorf("%d and %d seeds: 1 at least", o.Seeds, o.LongSeeds)
	case o.Workers < 1:
		return fmt.Errorf("%d workers: 1 at least", o.Workers)
	}
	return nil
}

// Measure measures all ways to assign items to shards. Measure calls done with each result as soon as the result is
// ready. If ctx ends, Measure returns the error of ctx.
func Measure(ctx context.Context, o Options, done func(Row)) ([]Row, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	var rows []Row
	for _, s := range Schemes() {
		row := Row{Scheme: s, Seeds: o.Seeds}
		if s.Name == ring(1, "").Name {
			row.Seeds = o.LongSeeds
		}
		var err error
		if row.NanosPerItem, err = timeOf(s, o); err != nil {
			return nil, err
		}
		stays, std := make([]float64, row.Seeds), make([]float64, row.Seeds)
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(o.Workers)
		for i := range row.Seeds {
			g.Go(func() (err error) {
				if err = ctx.Err(); err == nil {
					stays[i], std[i], err = move(s, NewItems(o.Items, uint64(i+1)), uint64(i+1), o.Shards)
				}
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
		row.StaysPercent, row.Std = spread(stays), spread(std)
		rows = append(rows, row)
		done(row)
	}
	return rows, nil
}

// move assigns all items before and after a shard is added. staysPercent is the percentage of items that stay on their
// shard, and std the standard deviation of the numbers of items per shard afterwards.
func move(s Scheme, items Items, seed uint64, shards int) (staysPercent, std float64, err error) {
	before, after, err := s.grow(items, seed, shards)
	if err != nil {
		return 0, 0, err
	}
	stay, per := 0, make([]int, shards+1)
	for i := range items.Len() {
		item := items.At(i)
		now := after(item)
		if before(item) == now {
			stay++
		}
		per[now]++
	}
	return 100 * float64(stay) / float64(items.Len()), deviation(per), nil
}

// timeOf returns the time of one assignment in nanoseconds. It measures three rounds over all items, and takes the
// fastest. The items come in an order from which no way of sharding profits.
func timeOf(s Scheme, o Options) (float64, error) {
	items := NewItems(o.Items, 0)
	_, assign, err := s.grow(items, 0, o.Shards)
	if err != nil {
		return 0, err
	}
	least, n := time.Duration(math.MaxInt64), items.Len()
	for range 3 {
		begun, sum := time.Now(), 0
		for i := range n {
			sum += assign(items.At(int(uint64(i) * 2654435761 % uint64(n))))
		}
		least = min(least, time.Since(begun))
		if sum < 0 {
			return 0, fmt.Errorf("%s assigned items to negative shards", s.Name)
		}
	}
	return float64(least.Nanoseconds()) / float64(n), nil
}

// deviation returns the standard deviation of counts, as of a whole population and not of a sample.
func deviation(counts []int) float64 {
	sum, squares := 0.0, 0.0
	for _, c := range counts {
		sum += float64(c)
	}
	mean := sum / float64(len(counts))
	for _, c := range counts {
		squares += (float64(c) - mean) * (float64(c) - mean)
	}
	return math.Sqrt(squares / float64(len(counts)))
}

func spread(of []float64) Spread {
	s := Spread{Min: math.Inf(1), Max: math.Inf(-1)}
	for _, x := range of {
		s.Mean += x / float64(len(of))
		s.Min, s.Max = min(s.Min, x), max(s.Max, x)
	}
	return s
}
