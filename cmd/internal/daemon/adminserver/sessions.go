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
	// mostSessions is the largest number of sessions at once. One more sign-in ends the oldest session.
	mostSessions = 64
	// sessionFor is the time after which a session ends, whether or not the session is used.
	sessionFor = 12 * time.Hour
	// mostSignIn is the largest size of the body of a sign-in request, in bytes. A larger body is refused.
	mostSignIn = 4 << 10
)

// sessions are the sessions of people who have signed in by a browser, with the admin token. Only hashes of the session
// ids are kept, so that someone who can read the memory of the process cannot use a session.
type sessions struct {
	token  [sha256.Size]byte
	cookie http.Cookie // without its value

	mu   sync.Mutex
	ends map[[sha256.Size]byte]time.Time // the time at which each session ends, by the hash of its id
}

// newSessions returns an empty set of sessions for an admin address. The parameter token is the admin token, and sealed
// is true if the address has TLS. The name of the sessions' cookie contains the port of address.
func newSessions(token string, address net.Addr, sealed bool) *sessions {
	// A browser sends the cookies of a host to all ports of the host, so each port needs a name of its own.
	s := &sessions{token: sha256.Sum256([]byte(token)), ends: map[[sha256.Size]byte]time.Time{}}
	_, port, _ := net.SplitHostPort(address.String())
	s.cookie = http.Cookie{
		Name: "evenkeel-" + port, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: sealed,
	}
	if sealed {
		s.cookie.Name = "__Host-" + s.cookie.Name // with this prefix no other host can set the cookie
	}
	return s
}

// allows reports whether token is the admin token. The comparison is of hashes of equal length, so the time that the
// comparison takes reveals nothing about the token.
func (s *sessions) allows(token string) bool {
	got := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(got[:], s.token[:]) == 1
}

// holds reports whether the request r has the cookie of a session that has not ended.
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

// begin begins a session for a person who has just signed in. It sets the session's cookie in the answer w, and returns
// the time at which the session ends.
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

// end ends the session whose cookie the request r has, if any. The answer w deletes the cookie in the browser.
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

// session is the JSON answer of /v1/session, which tells the console whether a person has to sign in.
type session struct {
	// Required is true if requests to the admin address need the admin token. SignedIn is true if the client may send
	// commands, by a session or because no token is needed. Expires is the end of the session.
	Required bool      `json:"required"`
	SignedIn bool      `json:"signed_in"`
	Expires  time.Time `json:"expires,omitzero"`
}

// signIn returns the handler of /v1/session, by which people sign in to the console. POST with the admin token begins a
// session, DELETE ends the session, and GET answers whether a session exists. The handler answers a wrong token with
// the delay of slow.
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
		_ = json.NewEncoder(w).Encode(out) // an error means that the client has gone
	}
}

// tokenOf returns the token in the body of a request to sign in. A body that is not JSON is an error.
func tokenOf(w http.ResponseWriter, r *http.Request) (string, error) {
	// A form on another web page cannot send JSON without asking this server first (a preflight request).
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

// problem writes an answer with a status code and an error text as JSON, in the form in which commands get errors.
func problem(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": text}) // an error means that the client has gone
}
