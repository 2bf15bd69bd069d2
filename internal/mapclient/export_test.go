package mapclient

import (
	"context"

	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/store"
)

// LimitRoots bounds the memory of decoded roots.
func LimitRoots(c *Client, bytes int64) { c.epochs.buckets.limit = bytes }

// StampAnswers makes a deliberate mistake: leases count from the answer of a poll.
func StampAnswers(c *Client) {
	c.net.ask = func(ctx context.Context, number uint32) (*poll, error) {
		p, err := c.net.askClock(ctx, number)
		if err == nil {
			p.sent = c.net.now()
		}
		return p, err
	}
}

// ClockNames tells whether a clock's record names a bucket after some value, and
// its value.
func ClockNames(rec store.Record, id store.BucketID, since uint64) (named bool, value uint64) {
	c, err := decodeClock(rec)
	if err != nil {
		panic(err)
	}
	return c.names(id, since), c.value
}

// BumpedClock is a clock's record after one more bump.
func BumpedClock(rec store.Record, id store.BucketID) store.Record {
	c, err := decodeClock(rec)
	if err != nil {
		panic(err)
	}
	return encodeClock(store.Version{Epoch: rec.Epoch + 1, Token: storekit.NewToken()}, c.bumped(id))
}

// ZeroClock is the record of a clock that was never bumped.
func ZeroClock() store.Record {
	return encodeClock(store.Version{Epoch: 1, Token: store.Token{1}}, mapClock{})
}

// SealClock is the record of a clock at some version and value that names no bucket.
func SealClock(v store.Version, value uint64) store.Record {
	return encodeClock(v, mapClock{value: value})
}

// AgreeOnSchemaAs and UpgradeSchemaTo are AgreeOnSchema and UpgradeSchema of a program whose newest version is another.
var (
	AgreeOnSchemaAs = agreeOnSchema
	UpgradeSchemaTo = upgradeSchema
)
