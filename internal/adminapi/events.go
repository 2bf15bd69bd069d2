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

// Sampled is an event that is sent to browsers when the history has new figures (sizes and loads) of the named buckets.
// The figures are those of the time At.
type Sampled struct {
	At      time.Time `json:"at"`
	Buckets []string  `json:"buckets"`
}

const (
	// mostStreams is the largest number of open streams of events; further requests fail. An admin address serves at
	// most 32 connections.
	mostStreams = 16
	// streamFor is the time after which a stream of events ends. A stream must end, since the session of its client may
	// have ended; browsers connect again by themselves.
	streamFor = 15 * time.Minute
	// noticeEvery is the pause between two checks for news of the history. statusEvery is the pause between two checks
	// of the status. aliveEvery is the pause between two empty messages, which show that the connection is alive.
	noticeEvery = 500 * time.Millisecond
	statusEvery = 2 * time.Second
	aliveEvery  = 15 * time.Second
)

// streams counts the open streams of server-sent events, so that there are not too many. It also knows which servers
// shut down, so that their streams end.
type streams struct {
	open atomic.Int32

	mu sync.Mutex
	// ended has, for each server that has served a stream, a channel that is closed when the server shuts down. A program
	// may serve one handler by several servers, and has few of them.
	ended map[*http.Server]chan struct{}
}

// ending returns a channel that is closed when the server of a request shuts down. The channel is nil, and so never
// closed, if the request has no server, as in a test.
func (s *streams) ending(r *http.Request) <-chan struct{} {
	server, ok := r.Context().Value(http.ServerContextKey).(*http.Server)
	if !ok {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ended := s.ended[server]
	if ended == nil {
		if s.ended == nil {
			s.ended = map[*http.Server]chan struct{}{}
		}
		ended = make(chan struct{})
		s.ended[server] = ended
		// Each call of Shutdown calls the function again.
		server.RegisterOnShutdown(sync.OnceFunc(func() { close(ended) }))
	}
	return ended
}

// events answers a request with a stream of server-sent events. The events tell about moves, new figures in the
// history, and changes of the status. If too many streams (16) are open, the request fails with Unavailable.
func (h *handler) events(w http.ResponseWriter, r *http.Request) {
	if err := h.leads(r.Context(), ""); err != nil {
		fail(w, err)
		return
	}
	ended := h.streams.ending(r)
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
	h.stream(r, &s, ended)
	s.send("end", 0, struct{}{})
}

// stream sends events to one client. It returns when the client disconnects, the channel ended is closed, the stream is
// streamFor (15 minutes) old, or this process no longer leads.
func (h *handler) stream(r *http.Request, s *stream, ended <-chan struct{}) {
	last, err := strconv.ParseInt(r.Header.Get("Last-Event-ID"), 10, 64)
	if err != nil || last < 0 {
		last = h.History().Noted() // the stream begins with the next notice
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
		case <-ended:
			return
		case <-end:
			return
		}
		if !h.Leading() {
			return // when the client connects again, the answer names the leader
		}
	}
}

// stream writes server-sent events to one client. The field err is the first error of a write, or nil; after an error
// nothing more is written.
type stream struct {
	w   http.ResponseWriter
	c   *http.ResponseController
	err error
}

// send sends one server-sent event, with the value v as JSON. The arguments are:
//   - event: the name of the event
//   - id: the number of the event, or 0 for none. A client that connects again sends the last number that it has
//     received.
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

// writeTime is the longest time that a client may take to receive one event. A slower client is disconnected.
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
