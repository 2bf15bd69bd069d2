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

// Flags are the command-line flags that say who may use the admin address of a process, in the form that the parser
// kong reads.
type Flags struct {
	AdminToken         string   `env:"EVENKEEL_ADMIN_TOKEN" placeholder:"TOKEN" help:"${adminserver_admin_token=}"`
	AdminHTTPSCertFile string   `name:"admin-https-cert-file" placeholder:"FILE" help:"${adminserver_admin_https_cert_file=}"`
	AdminHTTPSKeyFile  string   `name:"admin-https-key-file" placeholder:"FILE" help:"${adminserver_admin_https_key_file=}"`
	AdminClientCAFile  string   `name:"admin-client-ca-file" placeholder:"FILE" help:"${adminserver_admin_client_ca_file=}"`
	AllowHost          []string `sep:"," placeholder:"NAME" help:"${adminserver_allow_host=}"`
}

// leastToken is the least number of characters that an admin token must have. A shorter token could be guessed.
const leastToken = 16

// Access decides which clients may use an admin address, by a token, by client certificates, or by the host they name.
type Access struct {
	token    string
	cert     *reload.Certificate // nil: no TLS
	byClient bool                // clients need a certificate
	guard    *webguard.Guard
}

// Open checks the flags, and reads the certificate files that they name. An error names the flag, and says what to do.
// Warnings go to log.
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

// Resolve parses the address on which the admin server is to listen. If clients need neither a token nor a certificate,
// the address must be a loopback address. Resolve warns if the token would go over the network without TLS. flag is the
// name of the flag with the address, for errors.
func (a *Access) Resolve(flag, address string, log *slog.Logger) (*net.TCPAddr, error) {
	const hint = "set --admin-token (EVENKEEL_ADMIN_TOKEN) or --admin-client-ca-file to allow it"
	to, err := Resolve(flag, address, a.authenticates(), hint)
	if err == nil && a.token != "" && a.cert == nil && !to.IP.IsLoopback() {
		log.Warn("the admin token goes over the network in the clear: "+
			"give --admin-https-cert-file and --admin-https-key-file", "address", to.String())
	}
	return to, err
}

// Resolve parses the address on which a server is to listen. Unless open is true, the address must be a loopback
// address. An error names the flag, and ends with hint, which says how to allow other addresses.
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

// listener returns a listener that speaks TLS over l, or l itself if the admin address has no certificate.
func (a *Access) listener(l net.Listener) net.Listener {
	if a.cert == nil {
		return l
	}
	return tls.NewListener(l, a.cert.Config())
}

// known returns a handler that passes requests on to h if the client may see the console. If clients need a
// certificate, the client must have one. If clients need neither certificate nor token, the request must name this
// host.
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

// protect returns a handler that passes requests on to h if they may command this process. If there is an admin token,
// a request must have it, or the cookie of a session that began with the token.
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

// costly returns a handler that refuses requests which a web page of another origin makes, whatever the method. It
// protects requests that take much work: any page can make a browser GET an address, such as by an image.
func (a *Access) costly(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := a.guard.CheckAnyOrigin(r); err != nil {
			http.Error(w, err.Error()+"; if you mean it, open the address by hand", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

const (
	// failureDelay is the time after which a failed attempt to get access is answered.
	failureDelay = time.Second
	// mostDelayed is the most answers that are delayed at once, so that many attempts occupy few connections. Further
	// attempts are answered 429 at once, and their connections are closed. A 429 reveals as much as a 401: only the
	// length of the token protects against guessing. But clients with the right token are served while others guess.
	mostDelayed = 8
)

// slowdown refuses requests without access only after a delay, so that guessing a token takes long.
type slowdown struct {
	places chan struct{}
	log    *slog.Logger
	more   atomic.Int64 // attempts that were not logged since the last log line
}

func (s *slowdown) refuse(w http.ResponseWriter, r *http.Request, why string) {
	s.refuseBy(w, r, why, func(w http.ResponseWriter, code int, text string) { http.Error(w, text, code) })
}

// refuseBy refuses a request after a delay. The function answer writes the refusal. why is the reason, for the client
// and the log. If too many refusals wait already, it answers at once with status 429.
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
