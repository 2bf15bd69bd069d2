package adminserver

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon/secrecy"
	"github.com/evenkeel/evenkeel/internal/reload"
	"github.com/evenkeel/evenkeel/internal/webguard"
)

// Flags are the command-line flags that say who may use the admin address of a process, e.g. --admin-token and
// --allow-host. The command-line parser kong fills the fields. Flags.Open then checks them.
type Flags struct {
	AdminToken         string   `env:"EVENKEEL_ADMIN_TOKEN" placeholder:"TOKEN" help:"${adminserver_admin_token=}"`
	AdminHTTPSCertFile string   `name:"admin-https-cert-file" placeholder:"FILE" help:"${adminserver_admin_https_cert_file=}"`
	AdminHTTPSKeyFile  string   `name:"admin-https-key-file" placeholder:"FILE" help:"${adminserver_admin_https_key_file=}"`
	AdminClientCAFile  string   `name:"admin-client-ca-file" placeholder:"FILE" help:"${adminserver_admin_client_ca_file=}"`
	AllowHost          []string `sep:"," placeholder:"NAME" help:"${adminserver_allow_host=}"`
}

// leastToken is the least number of characters that an admin token must have. A shorter token could be guessed, so
// Flags.Open refuses a shorter token.
const leastToken = 16

// Access decides which clients may use the admin address of a process. A client proves itself by the admin token or by
// a client certificate. If the flags ask for neither, the request only has to name this host.
type Access struct {
	token    string
	cert     *reload.Certificate // nil: no TLS
	byClient bool                // clients need a certificate
	guard    *webguard.Guard
}

// Open checks the flags, reads the certificate files that the flags name, and returns the rules of access to the admin
// address. An error names the wrong flag, and says what to do. Open writes warnings to log, e.g. about a key file that
// other users can read.
func (f *Flags) Open(log *slog.Logger) (a *Access, err error) {
	switch {
	case f.AdminToken != "" && len(f.AdminToken) < leastToken:
		return nil, fmt.Errorf("--admin-token (EVENKEEL_ADMIN_TOKEN) has fewer than %d characters and could be guessed: "+
			"make one by `openssl rand -hex 16`", leastToken)
	case strings.ContainsFunc(f.AdminToken, func(r rune) bool { return r <= ' ' || r > '~' }):
		return nil, errors.New("--admin-token (EVENKEEL_ADMIN_TOKEN) has characters that a header can't hold: " +
			"printable ASCII without blanks only")
	case (f.AdminHTTPSCertFile == "") != (f.AdminHTTPSKeyFile == ""):
		return nil, errors.New("--admin-https-cert-file and --admin-https-key-file need each other")
	case f.AdminClientCAFile != "" && f.AdminHTTPSCertFile == "":
		return nil, errors.New("--admin-client-ca-file needs --admin-https-cert-file: certificates are a matter of TLS")
	}
	a = &Access{token: f.AdminToken, byClient: f.AdminClientCAFile != ""}
	if a.guard, err = webguard.New(f.AllowHost, nil); err != nil {
		return nil, fmt.Errorf("--allow-host: %w", err)
	}
	if f.AdminHTTPSCertFile != "" {
		a.cert, err = reload.OpenCertificate(f.AdminHTTPSCertFile, f.AdminHTTPSKeyFile, f.AdminClientCAFile)
		if err != nil {
			return nil, fmt.Errorf("--admin-https-cert-file, --admin-https-key-file and --admin-client-ca-file: %w", err)
		}
		secrecy.WarnOfFile(log, "--admin-https-key-file", f.AdminHTTPSKeyFile)
	}
	return a, nil
}

// authenticates reports whether a client must show the admin token or a client certificate.
func (a *Access) authenticates() bool { return a.token != "" || a.byClient }

// Resolve parses the address on which the admin server is to listen, such as localhost:9001. If clients need neither a
// token nor a certificate, only a loopback address is allowed. Resolve logs a warning if the token would cross the
// network without TLS. The parameter flag is the name of the flag with the address, for errors.
func (a *Access) Resolve(flag, address string, log *slog.Logger) (*net.TCPAddr, error) {
	const hint = "set --admin-token (EVENKEEL_ADMIN_TOKEN) or --admin-client-ca-file to allow it"
	to, err := Resolve(flag, address, a.authenticates(), hint)
	if err == nil && a.token != "" && a.cert == nil && !to.IP.IsLoopback() {
		log.Warn("the admin token goes over the network in the clear: "+
			"give --admin-https-cert-file and --admin-https-key-file", "address", to.String())
	}
	return to, err
}

// Resolve parses the address on which a server is to listen, such as localhost:9000. If open is false, only a loopback
// address is allowed. Errors name the flag with the address. The error for a forbidden address ends with the text hint,
// which tells the user how to allow other addresses.
func Resolve(flag, address string, open bool, hint string) (*net.TCPAddr, error) {
	a, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	if !open && !a.IP.IsLoopback() {
		return nil, fmt.Errorf("%s %s is not a loopback address; %s", flag, address, hint)
	}
	return a, nil
}

// listener returns a listener that speaks TLS over l. If the admin address has no certificate, listener returns l
// itself.
func (a *Access) listener(l net.Listener) net.Listener {
	if a.cert == nil {
		return l
	}
	return tls.NewListener(l, a.cert.Config())
}

// known returns a handler that passes a request on to h if the client may see the console. That depends on what the
// admin address asks of clients:
//   - a certificate: the client must have one. Otherwise the request is refused, with the delay of slow.
//   - neither a certificate nor a token: the Host header must name this host, against DNS rebinding.
//   - only a token: every request may pass, since the pages of the console hold nothing secret.
func (a *Access) known(h http.Handler, slow *slowdown) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !a.authenticates() {
			if err := a.guard.CheckHost(r); err != nil {
				http.Error(w, err.Error(), http.StatusForbidden)
				return
			}
		}
		if a.byClient && (r.TLS == nil || len(r.TLS.VerifiedChains) == 0) {
			slow.refuse(w, r, "the admin address asks for a client certificate: --admin-cert-file")
			return
		}
		h.ServeHTTP(w, r)
	})
}

// protect returns a handler that passes a request on to h if the request may command this process. If the process has
// an admin token, the request must carry the token, or the cookie of a session in s that began with the token. The
// handler refuses other requests with status 401, after the delay of slow.
func (a *Access) protect(h http.Handler, slow *slowdown, s *sessions) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.token != "" && !s.holds(r) {
			if given, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); !s.allows(given) {
				w.Header().Set("WWW-Authenticate", "Bearer")
				slow.refuse(w, r, "the admin token is missing or wrong")
				return
			}
		}
		h.ServeHTTP(w, r)
	})
}

// costly returns a handler that passes requests on to h, except those that a web page of another origin makes. It is
// for requests that take much work.
func (a *Access) costly(h http.Handler) http.Handler {
	// Any web page can make a browser GET an address, e.g. by an image, so the method of the request does not matter.
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := a.guard.CheckAnyOrigin(r); err != nil {
			http.Error(w, err.Error()+"; if you mean it, open the address by hand", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

const (
	// failureDelay is the time that passes before a failed attempt to get access is answered. The delay makes guessing
	// slow.
	failureDelay = time.Second
	// mostDelayed is the largest number of refusals that wait for their delay at once, so that many attempts occupy few
	// connections. Further attempts get status 429 at once, and their connections are closed. Clients with the right
	// token are still served while other clients guess. Only the length of the token protects against guessing, since
	// status 429 reveals as much as status 401.
	mostDelayed = 8
)

// slowdown refuses requests without access, each after a delay of one second, so that guessing a token takes long.
type slowdown struct {
	places chan struct{}
	log    *slog.Logger
	more   atomic.Int64 // attempts that were not logged since the last log line
}

func (s *slowdown) refuse(w http.ResponseWriter, r *http.Request, why string) {
	s.refuseBy(w, r, why, func(w http.ResponseWriter, code int, text string) { http.Error(w, text, code) })
}

// refuseBy refuses a request with status 401 after a delay. The parameter why is the reason, for the client and the
// log. The function answer writes the refusal, in the format that the client expects. At most 8 refusals wait for their
// delay, and further ones get status 429 at once.
func (s *slowdown) refuseBy(
	w http.ResponseWriter, r *http.Request, why string, answer func(w http.ResponseWriter, code int, text string),
) {
	select {
	case s.places <- struct{}{}:
	default:
		s.more.Add(1)
		w.Header().Set("Connection", "close")
		w.Header().Set("Retry-After", "1")
		answer(w, http.StatusTooManyRequests, "too many attempts failed: try again in a second")
		return
	}
	defer func() { <-s.places }()
	s.log.Warn("a request to the admin address is refused", "client", r.RemoteAddr, "why", why, "uri", r.URL.Path,
		"other tries since the last such line", s.more.Swap(0))
	// The delay goes on even if the client leaves, so that the client keeps one of the few places.
	time.Sleep(failureDelay)
	answer(w, http.StatusUnauthorized, why)
}
