package listing

import (
	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/mapclient"
)

// bucketDoor has the operations on a bucket that only packages of this module may call.
type bucketDoor struct{ *Bucket }

// clientDoor has the operations on names, and the timestamps, that only packages of this module may use.
type clientDoor struct{ *Client }

// init gives packages door and mapclient their functions. Through these, other packages of this module reach operations
// that programs do not see.
func init() {
	door.Bucket = func(handle any) door.BucketRows { return bucketDoor{handle.(*Bucket)} }
	door.Client = func(client any) door.ClientNames { return clientDoor{client.(*Client)} }
	door.UnderWay = ended
	mapclient.Of = func(client any) *mapclient.Client { return client.(*Client).maps }
	mapclient.NamesOf = func(client any) mapclient.CacheCounts {
		n := client.(*Client).names
		return mapclient.CacheCounts{Hits: n.hits.Load(), Misses: n.misses.Load(), Evictions: n.evictions.Load()}
	}
}
