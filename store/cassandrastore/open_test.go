package cassandrastore_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/internal/test/tlstest"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
)

// refused opens a store that must not open, for a reason that names each of says.
func refused(t *testing.T, o cassandrastore.Options, kind store.Kind, says ...string) {
	t.Helper()
	s, err := cassandrastore.Open(t.Context(), o)
	if err == nil {
		_ = s.Close()
	}
	require.ErrorIs(t, err, kind)
	for _, word := range says {
		require.ErrorContains(t, err, word)
	}
}

func TestOpenRefusesWhatIsMissing(t *testing.T) {
	for name, c := range map[string]struct {
		o    cassandrastore.Options
		says string
	}{
		"no host":        {cassandrastore.Options{DataCentre: "dc1", Keyspace: "k"}, "host"},
		"no data centre": {cassandrastore.Options{Hosts: []string{"h"}, Keyspace: "k"}, "data centre"},
		"no keyspace":    {cassandrastore.Options{Hosts: []string{"h"}, DataCentre: "dc1"}, "keyspace"},
		"strange keyspace": {cassandrastore.Options{Hosts: []string{"h"}, DataCentre: "dc1", Keyspace: "a; drop"},
			"keyspace"},
		"unknown level": {cassandrastore.Options{
			Hosts: []string{"h"}, DataCentre: "dc1", Keyspace: "k",
			Consistency: cassandrastore.Consistency{ReadRows: "MOST"},
		}, "MOST"},
		"no password": {cassandrastore.Options{Hosts: []string{"h"}, DataCentre: "dc1", Keyspace: "k", User: "u"},
			"password"},
		"no such file": {cassandrastore.Options{
			Hosts: []string{"h"}, DataCentre: "dc1", Keyspace: "k", User: "u", PasswordFile: "/no/such",
		}, "/no/such"},
		"upper-case letter": {cassandrastore.Options{Hosts: []string{"h"}, DataCentre: "dc1", Keyspace: "Keys"},
			"lower-case"},
	} {
		t.Run(name, func(t *testing.T) { refused(t, c.o, store.InvalidArgument, c.says) })
	}
}

func openRefusesAWrongCluster(t *testing.T, o cassandrastore.Options) {
	with := func(change func(o *cassandrastore.Options)) cassandrastore.Options {
		changed := o
		change(&changed)
		return changed
	}
	refused(
		t, with(func(o *cassandrastore.Options) { o.DataCentre = "elsewhere" }), store.InvalidArgument, `"elsewhere"`, "dc1",
	)
	refused(
		t, with(func(o *cassandrastore.Options) { o.Keyspace = "nosuchkeyspace" }), store.InvalidArgument, "nosuchkeyspace",
		"schema apply",
	)
	refused(t, with(func(o *cassandrastore.Options) { o.AllowSingleReplica = false }), store.InvalidArgument, "one copy")
	refused(
		t, with(func(o *cassandrastore.Options) { o.Hosts = []string{"127.0.0.1:1"} }), store.Unavailable, "127.0.0.1:1",
	)
}

func openWarnsOfAPeriodicCommitLog(t *testing.T, o cassandrastore.Options) {
	var log strings.Builder
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
	harness.Open(t, o)
	require.Contains(t, log.String(), "commitlog_sync is periodic")
}

func schemaCheckExplainsEachDifference(t *testing.T, o cassandrastore.Options) {
	admin, err := cassandrastore.OpenAdmin(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(admin.Close)
	check := func() (fatal, all []string) {
		problems, err := admin.Check(t.Context())
		require.NoError(t, err)
		for _, p := range problems {
			all = append(all, p.String())
			if p.Fatal {
				fatal = append(fatal, p.String())
			}
		}
		return fatal, all
	}
	fatal, all := check()
	require.Empty(t, fatal)
	require.Len(t, all, 2, "the commit log and the single replica: %v", all)
	require.NoError(t, admin.Apply(t.Context(), cassandrastore.Replication{"dc1": 1}), "applying again changes nothing")

	raw := rawSession(t, o)
	for _, change := range []struct {
		cql, says, undo string
		fatal           bool
	}{
		{"ALTER TABLE rows WITH default_time_to_live = 3600", "default_time_to_live is 3600",
			"ALTER TABLE rows WITH default_time_to_live = 0", true},
		{"ALTER TABLE roots WITH read_repair = 'NONE'", "read_repair is NONE",
			"ALTER TABLE roots WITH read_repair = 'BLOCKING'", true},
		{"ALTER TABLE clocks WITH additional_write_policy = 'NEVER'", "additional_write_policy is NEVER",
			"ALTER TABLE clocks WITH additional_write_policy = '99p'", true},
		{"ALTER TABLE rows WITH gc_grace_seconds = 60", "gc_grace_seconds is 60",
			"ALTER TABLE rows WITH gc_grace_seconds = 864000", true},
		{"ALTER TABLE rows WITH gc_grace_seconds = 86400", "gc_grace_seconds is 86400",
			"ALTER TABLE rows WITH gc_grace_seconds = 864000", false},
		{"ALTER TABLE nodes WITH compaction = {'class': 'SizeTieredCompactionStrategy'}",
			"SizeTieredCompactionStrategy",
			"ALTER TABLE nodes WITH compaction = {'class': 'UnifiedCompactionStrategy', 'scaling_parameters': 'T4'}",
			false},
		{"ALTER TABLE rows ADD note text", "column note", "ALTER TABLE rows DROP note", true},
		{"ALTER KEYSPACE " + o.Keyspace + " WITH durable_writes = false", "durable_writes",
			"ALTER KEYSPACE " + o.Keyspace + " WITH durable_writes = true", true},
		{"DROP TABLE sizes", "sizes: (warning) the table is missing", "", false},
		{"DROP TABLE busy", "busy: the table is missing", "", true},
		{"ALTER KEYSPACE " + o.Keyspace + " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
			"SimpleStrategy", "", true},
	} {
		require.NoError(t, raw.Query(change.cql).Exec())
		fatal, all := check()
		among := all
		if change.fatal {
			among = fatal
		}
		require.Contains(t, strings.Join(among, "\n"), change.says)
		if change.fatal {
			refused(t, o, store.InvalidArgument, change.says)
		} else {
			require.Empty(t, fatal)
		}
		if change.undo != "" {
			require.NoError(t, raw.Query(change.undo).Exec())
		}
	}
}

// A torn register is noticed: somebody's read repair of some columns only may
// leave a replica with the columns of different swaps.
func tornRegistersAreUnavailable(t *testing.T, o cassandrastore.Options) {
	s, raw := harness.Open(t, o), rawSession(t, o)
	for _, table := range store.Tables() {
		for _, torn := range []struct {
			set   string
			value any
		}{{"epoch", int64(2)}, {"swap_token", gocql.UUID(uuid.New())}} {
			key := uuid.New()
			first := store.Record{Version: store.Version{Epoch: 1, Token: storekit.NewToken()}, Blob: []byte("first")}
			require.NoError(t, s.Swap(t.Context(), table, key[:], store.Version{}, first))
			require.NoError(
				t,
				raw.Query("UPDATE "+table.String()+" SET "+torn.set+" = ? WHERE key = ?", torn.value, key[:]).
					WithTimestamp(time.Now().Add(time.Hour).UnixMicro()).
					Exec(),
			)
			for _, level := range []store.Level{store.Local, store.Serial} {
				_, err := s.Read(t.Context(), table, key[:], level)
				require.ErrorIs(t, err, store.Unavailable)
				require.ErrorContains(t, err, "torn")
			}
		}
	}
}

// fakeServer answers each request frame of the native protocol by what answer
// says: an opcode and a body.
func fakeServer(t *testing.T, version byte, answer func(opcode byte) (byte, string)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	serve := func(c net.Conn) {
		defer c.Close()
		header := make([]byte, 9)
		for {
			if _, err := io.ReadFull(c, header); err != nil {
				return
			}
			length := int64(header[5])<<24 | int64(header[6])<<16 | int64(header[7])<<8 | int64(header[8])
			if _, err := io.CopyN(io.Discard, c, length); err != nil {
				return
			}
			opcode, body := answer(header[4])
			n := len(body)
			reply := append(
				[]byte{0x80 | version, 0, header[2], header[3], opcode, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)},
				body...)
			if _, err := c.Write(reply); err != nil {
				return
			}
		}
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	return l.Addr().String()
}

func TestOpenRefusesAForeignProtocol(t *testing.T) {
	// code and text
	const message = "\x00\x00\x00\x0a\x00\x3fInvalid or unsupported protocol version (4); highest is three..."
	old := fakeServer(t, 3, func(byte) (byte, string) { return 0x00, message })
	o := cassandrastore.Options{Hosts: []string{old}, DataCentre: "dc1", Keyspace: "k", ConnectTimeout: time.Second}
	refused(t, o, store.InvalidArgument, "protocol", "5.0")
}

func TestOpenSaysThatALoginIsMissingOrWrong(t *testing.T) {
	host := fakeServer(t, 4, func(opcode byte) (byte, string) {
		switch opcode {
		case 0x05: // OPTIONS
			return 0x06, "\x00\x00"
		case 0x01: // STARTUP
			return 0x03, fmt.Sprintf("\x00\x2f%s", "org.apache.cassandra.auth.PasswordAuthenticator")
		default:
			return 0x00, "\x00\x00\x01\x00\x00\x05wrong"
		}
	})
	o := cassandrastore.Options{Hosts: []string{host}, DataCentre: "dc1", Keyspace: "k", ConnectTimeout: time.Second}
	refused(t, o, store.InvalidArgument, "wants a login")
	o.User, o.PasswordFile = "listings", passwordFile(t, "guess\n")
	refused(t, o, store.InvalidArgument, "refuses the user")
}

// TestOpenSaysThatACertificateIsMissing: a server that speaks TLS 1.3 refuses a client without a certificate after the
// handshake. The driver then sometimes has no other error than that there was no response in time.
func TestOpenSaysThatACertificateIsMissing(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	tlstest.Write(t, cert, key, "node.test")
	pair, err := tls.LoadX509KeyPair(cert, key)
	require.NoError(t, err)
	pem, err := os.ReadFile(cert)
	require.NoError(t, err)
	known := x509.NewCertPool()
	require.True(t, known.AppendCertsFromPEM(pem))
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS13,
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(io.Discard, c) // the handshake fails
				_ = c.Close()
			}()
		}
	}()
	o := cassandrastore.Options{
		Hosts: []string{l.Addr().String()}, DataCentre: "dc1", Keyspace: "k",
		TLS: &tls.Config{RootCAs: known, ServerName: "node.test", MinVersion: tls.VersionTLS12},
	}
	for range 30 {
		refused(t, o, store.Unavailable, "certificate")
	}
}

func passwordFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}
