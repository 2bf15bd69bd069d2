package adminapi

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evenkeel/evenkeel/store"
)

// Sampled says of which buckets the history has got a sample.
type Sampled struct {
	At      time.Time `json:"at"`
	Buckets []string  `json:"buckets"`
}

const (
	// mostStreams bounds the streams of events: an admin address keeps 32 connections.
	mostStreams = 16
	// streamFor is how long a stream lasts: a session may have ended. Browsers connect again by themselves.
	streamFor = 15 * time.Minute
	// noticeEvery is the pause between two looks for news, statusEvery between two for the status, and aliveEvery
	// between two signs of life.
	noticeEvery = 500 * time.Millisecond
	statusEvery = 2 * time.Second
	aliveEvery  = 15 * time.Second
)

// streams are those that are open.
type streams struct {
	open  atomic.Int32
	once  sync.Once
	ended chan struct{} // closed when the server shuts down
}

// events streams what happens, as server-sent events.
func (h *handler) events(w http.ResponseWriter, r *http.Request) {
	if err := h.leads(r.Context(), ""); err != nil {
		fail(w, err)
		return
	}
	if server, ok := r.Context().Value(http.ServerContextKey).(*http.Server); ok {
		h.streams.once.Do(func() { server.RegisterOnShutdown(func() { close(h.streams.ended) }) })
	}
	if h.streams.open.Add(1) > mostStreams {
		h.streams.open.Add(-1)
		w.Header().Set("Retry-After", "10")
		fail(w, store.Errorf(store.Unavailable, "%d streams of events are open, the most there may be: close a page", mostStreams))
		return
	}
	defer h.streams.open.Add(-1)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	s := stream{w: w, c: http.NewResponseController(w)}
	_ = s.c.SetReadDeadline(time.Time{}) // the request has been read
	h.stream(r, &s)
	s.send("end", 0, struct{}{})
}

// stream sends what happens until it is to end.
func (h *handler) stream(r *http.Request, s *stream) {
	last, err := strconv.ParseInt(r.Header.Get("Last-Event-ID"), 10, 64)
	if err != nil || last < 0 {
		last = h.History().Noted() // it begins now
	}
	var shown []byte
	var asked, alive time.Time
	end := time.After(streamFor)
	look := time.NewTicker(noticeEvery)
	defer look.Stop()
	for s.err == nil {
		for _, n := range h.History().Notices(last) {
			if last = n.ID; n.Move != nil {
				s.send("move", n.ID, h.named(n.Move))
			} else {
				x := Sampled{At: n.At, Buckets: []string{}}
				h.Names().Learn(r.Context(), n.Buckets)
				for _, id := range n.Buckets {
					x.Buckets = append(x.Buckets, h.nameOf(id))
				}
				s.send("column", n.ID, x)
			}
		}
		if now := time.Now(); now.Sub(asked) >= statusEvery {
			asked = now
			if status, err := h.status(r); err == nil {
				if text, err := marshal(status); err == nil && !bytes.Equal(text, shown) {
					s.send("status", 0, status)
					shown = text
				}
			}
			if now.Sub(alive) >= aliveEvery {
				alive = now
				s.write(": ok\n\n")
			}
		}
		select {
		case <-look.C:
		case <-r.Context().Done():
			return
		case <-h.streams.ended:
			return
		case <-end:
			return
		}
		if !h.Leading() {
			return // whoever comes again is told who does
		}
	}
}

// stream writes server-sent events.
type stream struct {
	w   http.ResponseWriter
	c   *http.ResponseController
	err error
}

// send sends an event; id 0: it has none.
func (s *stream) send(event string, id int64, v any) {
	data, err := marshal(v)
	if err != nil {
		return
	}
	text := fmt.Sprintf("event: %s\n", event)
	if id > 0 {
		text += fmt.Sprintf("id: %d\n", id)
	}
	s.write(text + "data: " + string(data) + "\n\n") // JSON has no line breaks
}

// writeTime is how long a client may take to read what was sent.
const writeTime = 10 * time.Second

func (s *stream) write(text string) {
	if s.err != nil {
		return
	}
	_ = s.c.SetWriteDeadline(time.Now().Add(writeTime))
	if _, s.err = s.w.Write([]byte(text)); s.err == nil {
		s.err = s.c.Flush()
	}
}
