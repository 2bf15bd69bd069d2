package reload

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
)

// Certificate is a server's TLS certificate and key, and the authorities of its clients'
// certificates, if it requests these. The files are reread when they change.
type Certificate struct {
	Files
	now atomic.Pointer[tls.Config]
}

// OpenCertificate reads a certificate, its key, and the authorities of clients' certificates;
// with an empty name these are not requested. Files that do not match, since only some of them
// have been replaced yet, are ignored.
func OpenCertificate(certFile, keyFile, clientCAFile string) (*Certificate, error) {
	c := &Certificate{}
	c.What, c.Names = "the certificate and its key", []string{certFile, keyFile}
	c.Take = func(contents [][]byte) error {
		pair, err := tls.X509KeyPair(contents[0], contents[1])
		if err != nil {
			return err
		}
		// Limits for slow clients hold for HTTP/1.1 only.
		now := &tls.Config{
			MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, Certificates: []tls.Certificate{pair},
		}
		if len(contents) > 2 {
			if now.ClientCAs, err = parsePool(contents[2]); err != nil {
				return fmt.Errorf("%s: %w", clientCAFile, err)
			}
			// Clients without one may still use the probes. Without tickets each connection
			// is checked against the present authorities.
			now.ClientAuth, now.SessionTicketsDisabled = tls.VerifyClientCertIfGiven, true
		}
		c.now.Store(now)
		return nil
	}
	if clientCAFile != "" {
		c.Names = append(c.Names, clientCAFile)
	}
	return c, c.Load()
}

// parsePool parses authorities in PEM.
func parsePool(pem []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errors.New("it holds no certificate in PEM form")
	}
	return pool, nil
}

// Config returns a configuration that uses the present certificate.
func (c *Certificate) Config() *tls.Config {
	return &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.now.Load(), nil }}
}

// ClientTLS is a client's configuration that trusts the authorities in a file, or the system's
// if its name is empty, and shows a certificate, if there is one. Errors name the flags: flags
// followed by -ca-file, -cert-file and -key-file.
func ClientTLS(flags, caFile, certFile, keyFile string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if caFile != "" {
		pem, err := os.ReadFile(caFile)
		if err != nil {
			return nil, fmt.Errorf("%s-ca-file: %w", flags, err)
		}
		if c.RootCAs, err = parsePool(pem); err != nil {
			return nil, fmt.Errorf("%s-ca-file: %s: %w", flags, caFile, err)
		}
	}
	if (certFile == "") != (keyFile == "") {
		return nil, fmt.Errorf("%s-cert-file and %s-key-file need each other", flags, flags)
	}
	if certFile != "" {
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			return nil, fmt.Errorf("%s-cert-file and %s-key-file: %w", flags, flags, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// ClientError is a client's failure to reach an address with the cause and the remedy, where TLS is
// the cause; else nil. flags begin the names of the flags for the address and for ClientTLS.
func ClientError(flags string, address *url.URL, err error) error {
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	switch {
	case errors.Is(err, http.ErrSchemeMismatch):
		return fmt.Errorf("%s speaks plain HTTP there, not TLS: give %s http://%[1]s", address.Host, flags)
	case strings.Contains(err.Error(), `malformed HTTP response "\x15`): // a record of TLS
		return SpeaksTLS(flags, address)
	case errors.As(err, &authority):
		return fmt.Errorf("the certificate of %s is by an authority that this host does not know: "+
			"name its certificate by %s-ca-file: %w", address, flags, err)
	case errors.As(err, &name):
		return fmt.Errorf("the certificate of %s is for another host: give %s by a name that it is for: %w",
			address, flags, err)
	}
	return nil
}

// SpeaksTLS says that a server was addressed without TLS.
func SpeaksTLS(flags string, address *url.URL) error {
	return fmt.Errorf("%s speaks TLS: give %s https://%[1]s", address.Host, flags)
}

// AsksForTLS reports whether an answer is how Go's servers refuse plain HTTP at a port for TLS.
func AsksForTLS(status int, body []byte) bool {
	return status == http.StatusBadRequest && bytes.Contains(body, []byte("HTTP request to an HTTPS server"))
}
