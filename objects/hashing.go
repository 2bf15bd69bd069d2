package objects

import (
	"crypto/md5"
	"hash"
	"sync"
)

// hashedAtOnce is the length, in bytes, of the blocks of a body that are hashed in another goroutine. The hand-over of
// a block of this length costs only some percent of the time that hashing the block takes.
const hashedAtOnce = 64 << 10

// bytesToHash is a pool of the memory blocks into which bodies are copied for hashing.
var bytesToHash = sync.Pool{New: func() any { return new([hashedAtOnce]byte) }}

// A hashing computes the MD5 of a body while the body is being stored. An MD5 takes longer than writing to a fast disk.
// So write copies the body into blocks, and other goroutines hash the blocks, one after the other. Only the first bytes
// of a body are hashed by write itself. If the body breaks off, the hashing can be dropped: its goroutines end by
// themselves. The zero value is ready.
type hashing struct {
	sum    hash.Hash
	begun  int      // bytes that write hashed itself: a short body needs no blocks
	blocks [3]block // used in turns: one is filled, one is hashed, and one waits
	at     int      // index of the block that is being filled
	n      int      // bytes in that block
}

// block is a piece of a body that is hashed at once, in a goroutine of its own.
type block struct {
	bytes *[hashedAtOnce]byte
	done  chan struct{} // closed once the block is hashed; nil: the block is not full
}

// write adds p to the hash. It hashes the first bytes of a body itself. Of a longer body it copies p into blocks, which
// other goroutines hash.
func (h *hashing) write(p []byte) {
	if h.sum == nil {
		h.sum = md5.New()
	}
	if h.begun+len(p) <= hashedAtOnce && h.blocks[0].bytes == nil {
		_, _ = h.sum.Write(p)
		h.begun += len(p)
		return
	}
	for len(p) > 0 {
		b := &h.blocks[h.at]
		if b.bytes == nil {
			b.bytes = bytesToHash.Get().(*[hashedAtOnce]byte)
		}
		if b.done != nil {
			<-b.done
			b.done = nil
		}
		n := copy(b.bytes[h.n:], p)
		p = p[n:]
		if h.n += n; h.n == hashedAtOnce {
			b.done = make(chan struct{})
			go func(sum hash.Hash, before, done chan struct{}, bytes []byte) {
				if before != nil {
					<-before
				}
				_, _ = sum.Write(bytes)
				close(done)
			}(h.sum, h.before().done, b.done, b.bytes[:])
			h.at, h.n = (h.at+1)%len(h.blocks), 0
		}
	}
}

// before returns the block that was filled just before the block that is being filled now. The blocks form a ring.
func (h *hashing) before() *block { return &h.blocks[(h.at+len(h.blocks)-1)%len(h.blocks)] }

// end returns the MD5 of all bytes that were written, and frees the memory of the hashing. It is called once, after the
// last write.
func (h *hashing) end() []byte {
	if h.sum == nil {
		h.sum = md5.New()
	}
	if done := h.before().done; done != nil {
		<-done // the blocks before this one are hashed, too, then
	}
	if h.n > 0 {
		_, _ = h.sum.Write(h.blocks[h.at].bytes[:h.n])
	}
	for _, b := range h.blocks {
		if b.bytes != nil {
			bytesToHash.Put(b.bytes)
		}
	}
	return h.sum.Sum(nil)
}
