package objects

import (
	"crypto/md5"
	"hash"
	"sync"
)

// hashedAtOnce is how many bytes are handed to another goroutine at a time: that costs some percent of
// hashing them.
const hashedAtOnce = 64 << 10

// bytesToHash pools the memory of bodies that are being hashed.
var bytesToHash = sync.Pool{New: func() any { return new([hashedAtOnce]byte) }}

// A hashing takes the MD5 of a body while the body is being stored: MD5 has no faster form for one stream,
// and is slower than a fast disk. Behind the beginning, it copies the body into blocks, and goroutines hash
// them, each after the one before. Goroutines end by themselves, so a body that broke off needs no end. The
// zero value is ready.
type hashing struct {
	sum    hash.Hash
	begun  int      // bytes that were hashed at once: a short body needs no memory
	blocks [3]block // in turns: one is being filled while another is being hashed, and the next one waits
	at     int      // the block that is being filled
	n      int      // bytes in it
}

type block struct {
	bytes *[hashedAtOnce]byte
	done  chan struct{} // closed once it is hashed; nil: it is not full
}

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

// before returns the block before the one that is being filled.
func (h *hashing) before() *block { return &h.blocks[(h.at+len(h.blocks)-1)%len(h.blocks)] }

// end returns the sum, and frees the memory. It is called once, after the last write.
func (h *hashing) end() []byte {
	if h.sum == nil {
		h.sum = md5.New()
	}
	if done := h.before().done; done != nil {
		<-done // and so the others are, too
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
