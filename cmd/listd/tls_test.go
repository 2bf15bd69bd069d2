package main

import (
	"crypto/tls"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/internal/test/tlstest"
)

func TestHTTPS(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	tlstest.Write(t, cert, key, "the first")
	p := start(t, t.TempDir(), "--https-cert-file", cert, "--https-key-file", key, "--host-suffix",
		"s3.example.test, localhost")
	require.True(t, strings.HasPrefix(p.s3, "https://127.0.0.1:"), p.s3)
	shown := func() string {
		conn, err := tls.Dial("tcp", strings.TrimPrefix(p.s3, "https://"), &tls.Config{InsecureSkipVerify: true,
			NextProtos: []string{"h2", "http/1.1"}})
		require.NoError(t, err)
		defer conn.Close()
		require.Equal(t, "http/1.1", conn.ConnectionState().NegotiatedProtocol)
		return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	require.Equal(t, "the first", shown())
	load := exec.Command(binary, "load", "abc", "--create", "--server", p.s3)
	load.Stdin, load.Env = strings.NewReader("a\n"), append(os.Environ(), "SSL_CERT_FILE="+cert)
	out, err := load.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, "a\n", ok(t, "", "ls", "abc", "--server", p.s3, "--server-ca-file", cert))
	require.Contains(t, listd(t, "", "ls", "abc", "--server", p.s3, "--patience", "0s").err, "certificate")

	// The bucket's name from the host's.
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	req, err := http.NewRequest(http.MethodHead, p.s3+"/a", nil)
	require.NoError(t, err)
	req.Host = "abc.s3.example.test:9000"
	resp, err := client.Do(req)
	require.NoError(t, err)
	require.Equal(t, 200, resp.StatusCode)
	require.NoError(t, resp.Body.Close())

	require.NoError(t, os.WriteFile(key, []byte("no key"), 0o600))
	waitFor(t, func() bool { return strings.Contains(p.errs.String(), "stay in force") })
	require.Equal(t, "the first", shown())
	tlstest.Write(t, cert, key, "the second")
	waitFor(t, func() bool { return shown() == "the second" })
	client.CloseIdleConnections()

	for args, says := range map[string]string{
		"--https-cert-file " + cert:                                "need each other",
		"--https-cert-file " + cert + " --https-key-file " + cert:  "--https-cert-file and --https-key-file",
		"--https-cert-file " + cert + " --https-key-file /no/such": "/no/such",
		"--host-suffix http://s3.example.test":                     "not the name of a host",
		"--host-suffix .":                                          "not the name of a host",
	} {
		o := listd(t, "", append([]string{"serve", "--data", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0",
			"--admin",
			"127.0.0.1:0"}, strings.Fields(args)...)...)
		require.Equal(t, daemon.ExitUsage, o.code, "%s: %s", args, o.err)
		require.Contains(t, o.err, says)
	}
}

// TestAdminHTTPS: commands reach an admin address over TLS, with a token and a certificate.
func TestAdminHTTPS(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	tlstest.Write(t, cert, key, "listd")
	own, ownKey := filepath.Join(dir, "own.pem"), filepath.Join(dir, "own-key.pem")
	tlstest.Write(t, own, ownKey, "operator")
	t.Setenv("EVENKEEL_ADMIN_TOKEN", "sixteen-secrets-")
	p := start(t, t.TempDir(),
		"--admin-https-cert-file", cert, "--admin-https-key-file", key, "--admin-client-ca-file", own)
	require.True(t, strings.HasPrefix(p.admin, "https://127.0.0.1:"), p.admin)
	backup := []string{"backup", filepath.Join(dir, "backup"), "--admin", p.admin}
	trusting := append(backup, "--admin-ca-file", cert)
	require.Contains(t, listd(t, "", backup...).err, "certificate")
	require.Contains(t, listd(t, "", trusting...).err, "--admin-cert-file")
	ok(t, "", append(trusting, "--admin-cert-file", own, "--admin-key-file", ownKey)...)
	require.NotContains(t, p.errs.String(), "sixteen-secrets-")

	tlstest.Write(t, cert, key, "listd again")
	waitFor(t, func() bool { return strings.Contains(p.errs.String(), "read again") })
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "backup")))
	ok(t, "", append(trusting, "--admin-cert-file", own, "--admin-key-file", ownKey)...)
}
