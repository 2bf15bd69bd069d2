package counter

import "slices"

// Asked is the key of one sampled request to a partition: the key that was put, deleted or read, or the first key of a
// page that was read. Only the first 256 bytes of a long key are kept.
type Asked struct {
	Key []byte
	// At is the time of the request, in Unix milliseconds.
	At int64
}

const (
	// askedFrom is the number of requests to a partition, after each flush of counts, that are not sampled, so that
	// quiet partitions cost nothing. After them about one request in askedEvery is sampled, and at most askedFlush
	// requests per flush.
	askedFrom  = 8
	askedEvery = 16
	askedFlush = 4
	// maxAskedKey is the number of bytes that are kept of the key of a sampled request. The rest of a longer key is
	// dropped.
	maxAskedKey = 256
)

// ask samples the key of a request to a partition: of every 16th request on average, and of at most 4 requests in one
// flush interval. Most calls only count down to the next request to be sampled.
func (x *pending) ask(key []byte) {
	if x.skip--; x.skip > 0 || len(x.Asked) >= askedFlush {
		return
	}
	// A fixed step would see only one of two requests that alternate, so the step is random.
	x.lot = x.lot*6364136223846793005 + 1442695040888963407
	x.skip = 1 + int(x.lot>>33)%(2*askedEvery-1)
	x.Asked = append(x.Asked, slices.Clone(key[:min(len(key), maxAskedKey)]))
}
