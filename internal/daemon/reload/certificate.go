package reload

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
)

// Certificate is a server's TLS certificate with its key, read again when they change,
// and with the authorities of its clients' certificates, if it asks for these.
type Certificate struct {
	Files
	now atomic.Pointer[tls.Config]
}

// OpenCertificate reads a certificate and its key, and the authorities that certificates
// of clients have to be from; an empty name: clients show none. While a change of several
// files is half done they don't fit, and the old ones stay.
func OpenCertificate(certFile, keyFile, clientCAFile string) (*Certificate, error) {
	c := &Certificate{}
	c.What, c.Names = "the certificate and its key", []string{certFile, keyFile}
	c.Take = func(contents [][]byte) error {
		pair, err := tls.X509KeyPair(contents[0], contents[1])
		if err != nil {
			return err
		}
		// S3 speaks HTTP/1.1 only, and so does every server here: one set of limits for
		// slow clients is enough.
		now := &tls.Config{
			MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, Certificates: []tls.Certificate{pair},
		}
		if len(contents) > 2 {
			if now.ClientCAs, err = Pool(contents[2]); err != nil {
				return fmt.Errorf("%s: %w", clientCAFile, err)
			}
			// Who shows none still reaches the probes. Without tickets each connection is
			// checked against the authorities of now.
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

// Pool reads authorities from PEM.
func Pool(pem []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errors.New("it holds no certificate in PEM form")
	}
	return pool, nil
}

// Config serves what is in force.
func (c *Certificate) Config() *tls.Config {
	return &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.now.Load(), nil }}
}

// ClientTLS is how a client trusts: authorities in a file, whose flag errors name, or those
// of the system if its name is empty.
func ClientTLS(flag, caFile string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if caFile == "" {
		return c, nil
	}
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	if c.RootCAs, err = Pool(pem); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", flag, caFile, err)
	}
	return c, nil
}
