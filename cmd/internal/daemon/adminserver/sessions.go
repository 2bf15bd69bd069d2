package adminserver

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"io"
	"mime"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// mostSessions bounds the sessions: beyond, the oldest one ends.
	mostSessions = 64
	// sessionFor is how long a session lasts, whatever is done in it.
	sessionFor = 12 * time.Hour
	// mostSignIn bounds the body of a sign-in.
	mostSignIn = 4 << 10
)

// sessions are those of people who have signed in with the admin token by a browser. It keeps hashes of their ids: what
// reads its memory can't sign in.
type sessions struct {
	token  [sha256.Size]byte
	cookie http.Cookie // without its value

	mu   sync.Mutex
	ends map[[sha256.Size]byte]time.Time
}

// newSessions makes the sessions of an address. A browser sends a host's cookies to all of its ports: the port is part of
// the name.
func newSessions(token string, address net.Addr, sealed bool) *sessions {
	s := &sessions{token: sha256.Sum256([]byte(token)), ends: map[[sha256.Size]byte]time.Time{}}
	_, port, _ := net.SplitHostPort(address.String())
	s.cookie = http.Cookie{
		Name: "evenkeel-" + port, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: sealed,
	}
	if sealed {
		s.cookie.Name = "__Host-" + s.cookie.Name // no other host may set it
	}
	return s
}

// allows reports whether a token is the right one. Hashes have one length: the comparison's time reveals nothing.
func (s *sessions) allows(token string) bool {
	got := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(got[:], s.token[:]) == 1
}

// holds reports whether a request belongs to a session.
func (s *sessions) holds(r *http.Request) bool {
	c, err := r.Cookie(s.cookie.Name)
	if err != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	end, there := s.ends[sha256.Sum256([]byte(c.Value))]
	return there && time.Now().Before(end)
}

// begin begins a session.
func (s *sessions) begin(w http.ResponseWriter) (end time.Time) {
	id := make([]byte, 32)
	_, _ = rand.Read(id) // it never fails
	c := s.cookie
	c.Value = hex.EncodeToString(id)
	now := time.Now()
	end = now.Add(sessionFor)
	c.MaxAge = int(sessionFor.Seconds())
	s.mu.Lock()
	defer s.mu.Unlock()
	var first [sha256.Size]byte
	oldest := end
	for id, at := range s.ends {
		if at.Before(now) {
			delete(s.ends, id)
		} else if at.Before(oldest) {
			first, oldest = id, at
		}
	}
	if len(s.ends) >= mostSessions {
		delete(s.ends, first)
	}
	s.ends[sha256.Sum256([]byte(c.Value))] = end
	http.SetCookie(w, &c)
	return end
}

// end ends the session of a request.
func (s *sessions) end(w http.ResponseWriter, r *http.Request) {
	if c, err := r.Cookie(s.cookie.Name); err == nil {
		s.mu.Lock()
		delete(s.ends, sha256.Sum256([]byte(c.Value)))
		s.mu.Unlock()
	}
	c := s.cookie
	c.MaxAge = -1
	http.SetCookie(w, &c)
}

// session is the answer of /v1/session.
type session struct {
	// Required: requests need a token.
	Required bool      `json:"required"`
	SignedIn bool      `json:"signed_in"`
	Expires  time.Time `json:"expires,omitzero"`
}

// signIn answers /v1/session: POST with the token begins a session, DELETE ends it, GET tells.
func (a *Access) signIn(slow *slowdown, s *sessions) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := a.guard.CheckAnyOrigin(r); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		out := session{Required: a.token != "", SignedIn: a.token == "" || s.holds(r)}
		switch {
		case r.Method == http.MethodPost && a.token != "":
			token, err := tokenOf(w, r)
			if err != nil {
				problem(w, http.StatusBadRequest, "send the token as JSON: {\"token\":\"…\"}")
				return
			}
			if !s.allows(token) {
				slow.refuseBy(w, r, "the admin token is wrong: it is that of --admin-token (EVENKEEL_ADMIN_TOKEN) of this process", problem)
				return
			}
			out.SignedIn, out.Expires = true, s.begin(w).UTC().Truncate(time.Second)
		case r.Method == http.MethodDelete && a.token != "":
			s.end(w, r)
			out.SignedIn = false
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_ = json.NewEncoder(w).Encode(out) // the client has gone
	}
}

// tokenOf reads a sign-in. A form of a web page can't send JSON without asking first.
func tokenOf(w http.ResponseWriter, r *http.Request) (string, error) {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		return "", io.ErrUnexpectedEOF
	}
	var in struct {
		Token string `json:"token"`
	}
	err = json.NewDecoder(http.MaxBytesReader(w, r.Body, mostSignIn)).Decode(&in)
	return in.Token, err
}

// problem answers an error as the commands do.
func problem(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": text}) // the client has gone
}
