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

// Certificate is a server's TLS certificate with its private key, read from files. A Certificate may also have the
// certificate authorities that sign the certificates of clients. Run reads the files again when they change.
type Certificate struct {
	Files
	now atomic.Pointer[tls.Config]
}

// OpenCertificate reads a server's certificate, its private key, and the authorities that sign clients' certificates.
// If clientCAFile is empty, clients need no certificate. OpenCertificate returns an error if the files do not match
// each other. A mismatch after a later change of the files is only logged, as perhaps not all files have been replaced
// yet.
func OpenCertificate(certFile, keyFile, clientCAFile string) (*Certificate, error) {
	c := &Certificate{}
	c.What, c.Names = "the certificate and its key", []string{certFile, keyFile}
	c.Take = func(contents [][]byte) error {
		pair, err := tls.X509KeyPair(contents[0], contents[1])
		if err != nil {
			return err
		}
		// HTTP/2 is not offered, as the servers' limits for slow clients are for HTTP/1.1.
		now := &tls.Config{
			MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, Certificates: []tls.Certificate{pair},
		}
		if len(contents) > 2 {
			if now.ClientCAs, err = parsePool(contents[2]); err != nil {
				return fmt.Errorf("%s: %w", clientCAFile, err)
			}
			// A client without a certificate may still use the probes. Without session tickets each connection is
			// checked against the present authorities.
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

// parsePool returns the certificate authorities in pem, the content of a PEM file. A file without a certificate is an
// error.
func parsePool(pem []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errors.New("it holds no certificate in PEM form")
	}
	return pool, nil
}

// Config returns the TLS configuration of a server. Each new connection gets the certificate that was read last, so a
// renewed certificate needs no restart.
func (c *Certificate) Config() *tls.Config {
	return &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.now.Load(), nil }}
}

// ClientTLS returns the TLS configuration of a client. The client trusts the authorities in caFile, or those of the
// system if caFile is empty. The client shows the server the certificate in certFile, or none if certFile is empty.
// flags is the common beginning of the names of three flags for the files, for errors: flags + "-ca-file", "-cert-file"
// and "-key-file".
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

// ClientError explains err, the error of a client that could not reach address, if TLS is the cause. The result is an
// error with the cause and a remedy, or nil for any other cause. flags is the flag that gives the address. flags +
// "-ca-file" is the flag for the authorities.
func ClientError(flags string, address *url.URL, err error) error {
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	switch {
	case errors.Is(err, http.ErrSchemeMismatch):
		return fmt.Errorf("%s speaks plain HTTP there, not TLS: give %s http://%[1]s", address.Host, flags)
	case strings.Contains(err.Error(), `malformed HTTP response "\x15`): // the server answered with a TLS record
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

// SpeaksTLS returns the error for a client that spoke plain HTTP to a server that expects TLS. The error tells the user
// to give an https address. flags is the flag that gives the address.
func SpeaksTLS(flags string, address *url.URL) error {
	return fmt.Errorf("%s speaks TLS: give %s https://%[1]s", address.Host, flags)
}

// AsksForTLS reports whether an HTTP answer with the given status and body says that the port expects TLS. AsksForTLS
// recognises only the answer of Go's servers.
func AsksForTLS(status int, body []byte) bool {
	return status == http.StatusBadRequest && bytes.Contains(body, []byte("HTTP request to an HTTPS server"))
}
