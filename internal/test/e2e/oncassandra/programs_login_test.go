package oncassandra

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/cassandratest"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
)

// TestProgramsLogIn to a node that demands a password, and over TLS a certificate
// of the client: with either wrong or missing they don't start, and say why.
func TestProgramsLogIn(t *testing.T) {
	t.Parallel()
	p := build(t)
	p.Patience = time.Minute
	file := func(name, text string) string {
		path := filepath.Join(p.Dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	cert, key := clientCertificate(t)
	certFile, keyFile := file("client.crt", cert), file("client.key", key)
	nodeCert := file("node.crt", keystores(t, p.Dir, certFile))
	node := cassandratest.New(t, cassandratest.Options{Passwords: true, Settings: []string{
		"client_encryption_options:",
		"  enabled: true",
		"  optional: true", // the test's own look whether the node is up is in the clear
		"  require_client_auth: true",
		"  keystore: " + filepath.Join(p.Dir, "node.jks"),
		"  keystore_password: changeit",
		"  truststore: " + filepath.Join(p.Dir, "trust.jks"),
		"  truststore_password: changeit",
	}}).Nodes[0]
	password, guess := file("password", "cassandra\n"), file("guess", "guess\n")
	login := []string{"--user", "cassandra", "--password-file", password}
	encrypted := []string{"--tls", "--tls-server-name", "node.test", "--tls-ca-file", nodeCert}
	certificate := []string{"--tls-cert-file", certFile, "--tls-key-file", keyFile}
	all := append(append(append([]string{}, login...), encrypted...), certificate...)

	s := harness.Site{Host: node.Address, Name: "listings", More: all}
	harness.Eventually(t, "the node has made its first user", func() bool {
		code, _, errs := p.Try("rebalancer", s.Flags("schema", "apply", "--replication", "dc1=1")...)
		require.True(t, code == 0 || strings.Contains(errs, "refuses the user"), errs)
		return code == 0
	})
	srv := p.ServeSite(s)
	p.Run("listd", "bucket", "create", "abc", "--server", srv.S3)
	require.Equal(t, 200, harness.Request(t, "PUT", srv.S3+"/abc/k", "v").Status)
	require.Equal(t, "v", harness.Request(t, "GET", srv.S3+"/abc/k", "").Body)
	require.Equal(t, 0, srv.End(syscall.SIGTERM), srv.Log)

	for name, c := range map[string]struct {
		flags []string
		says  string
	}{
		"no user":          {nil, "wants a login"},
		"wrong password":   {[]string{"--user", "cassandra", "--password-file", guess}, "refuses the user"},
		"unknown user":     {[]string{"--user", "nobody", "--password-file", password}, "refuses the user"},
		"no password file": {[]string{"--user", "cassandra", "--password-file", "/no/such"}, "/no/such"},
		"unknown authority": {append(append([]string{"--tls", "--tls-server-name", "node.test", "--tls-ca-file",
			certFile}, certificate...), login...), "certificate"},
		"certificate of another node": {append(append([]string{"--tls", "--tls-server-name", "other.test",
			"--tls-ca-file", nodeCert}, certificate...), login...), "node.test"},
		"no certificate": {append(append([]string{}, encrypted...), login...), "certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			s.More = c.flags
			code, out, errs := p.Try("listd",
				s.Flags("serve", "--local-dc", "dc1", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")...)
			require.Equal(t, 3, code, errs)
			require.Empty(t, out)
			require.Contains(t, errs, c.says)
		})
	}
}

// clientCertificate makes a certificate that vouches for itself, and its key.
func clientCertificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "listd"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	require.NoError(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}))
}

// keystores makes the node's key and the store of whom it trusts, and returns the
// node's certificate.
func keystores(t *testing.T, dir, trusted string) string {
	t.Helper()
	path := "keytool"
	if installed, _ := filepath.Glob("/usr/lib/jvm/*17*/bin/keytool"); len(installed) > 0 {
		path = installed[0]
	}
	if home := os.Getenv("JAVA_HOME"); home != "" {
		path = filepath.Join(home, "bin", "keytool")
	}
	keytool := func(args ...string) string {
		out, err := exec.Command(path, append(args, "-storepass", "changeit", "-noprompt")...).Output()
		require.NoError(t, err, "keytool %q: %s", args, out)
		return string(out)
	}
	node := filepath.Join(dir, "node.jks")
	keytool("-genkeypair", "-keystore", node, "-alias", "node", "-keyalg", "EC", "-dname", "CN=node.test", "-ext",
		"san=dns:node.test", "-validity", "2")
	keytool("-importcert", "-keystore", filepath.Join(dir, "trust.jks"), "-alias", "listd", "-file", trusted)
	return keytool("-exportcert", "-rfc", "-keystore", node, "-alias", "node")
}
