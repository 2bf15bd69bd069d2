package oncassandra

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/cassandratest"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
)

// TestProgramsNeedFewGrants: who may read and write the keyspace, and nothing else, serves and
// moves ranges; who may do less is told what is missing.
func TestProgramsNeedFewGrants(t *testing.T) {
	t.Parallel()
	p := build(t)
	p.Patience = time.Minute
	node := cassandratest.New(t, cassandratest.Options{Passwords: true, Grants: true, Settings: []string{
		"permissions_validity: 100ms", // grants count at once
		"permissions_update_interval: 100ms",
	}}).Nodes[0]
	passwordOf := func(user string) []string {
		path := filepath.Join(p.Dir, user)
		require.NoError(t, os.WriteFile(path, []byte(user+"\n"), 0o600))
		return []string{"--user", user, "--password-file", path}
	}
	s := harness.Site{Host: node.Address, Name: "listings", More: passwordOf("cassandra")}
	harness.Eventually(t, "the node has made its first user", func() bool {
		code, _, errs := p.Try("rebalancer", s.Flags("schema", "apply", "--replication", "dc1=1")...)
		require.True(t, code == 0 || strings.Contains(errs, "refuses the user"), errs)
		return code == 0
	})
	session := func(user string) *gocql.Session {
		c := gocql.NewCluster(node.Address)
		c.ProtoVersion, c.Timeout, c.ConnectTimeout, c.DisableInitialHostLookup = 4, 10*time.Second, 10*time.Second,
			true
		c.Authenticator = gocql.PasswordAuthenticator{Username: user, Password: user}
		session, err := c.CreateSession()
		require.NoError(t, err)
		t.Cleanup(session.Close)
		return session
	}
	operator := session("cassandra")
	roles := []string{"Nobody", "Reader", "Server"}
	for _, name := range roles {
		require.NoError(t, operator.Query(`CREATE ROLE "`+name+`" WITH LOGIN = true AND PASSWORD = '`+name+`'`).Exec())
	}
	grants := func(role string) (statements []string) {
		for line := range strings.Lines(p.Run("rebalancer", "schema", "grants", "--keyspace", s.Name, "--role", role)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "--") {
				statements = append(statements, strings.TrimSuffix(line, ";"))
			}
		}
		require.Len(t, statements, 3)
		return statements
	}
	grant := func(statement string) { require.NoError(t, operator.Query(statement).Exec(), statement) }
	refused := func(user, says string) {
		s.More = passwordOf(user)
		serve := s.Flags("serve", "--local-dc", "dc1", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
		code, out, errs := p.Try("listd", serve...)
		require.Equal(t, 3, code, errs)
		require.Empty(t, out)
		require.Contains(t, errs, says)
		require.Contains(t, errs, "rebalancer schema grants")
	}
	refused(roles[0], "no SELECT permission")
	grant(grants(roles[1])[0])
	refused(roles[1], "no MODIFY permission")

	for _, statement := range grants(roles[2])[:2] {
		grant(statement)
	}
	require.Error(t, session(roles[2]).Query("SELECT role FROM system_auth.roles").Exec(), "grants count here")
	s.More = passwordOf(roles[2])
	srv := p.ServeSite(s)
	require.Contains(t, srv.Log.String(), "system_views.settings")
	p.Run("listd", "bucket", "create", "abc", "--server", srv.S3)
	for _, key := range []string{"a", "b", "c"} {
		require.Equal(t, 200, harness.Request(t, "PUT", srv.S3+"/abc/"+key, "v").Status)
	}
	require.Equal(t, "v", harness.Request(t, "GET", srv.S3+"/abc/b", "").Body)
	require.Equal(t, 204, harness.Request(t, "DELETE", srv.S3+"/abc/c", "").Status)
	harness.Eventually(t, "the server leads", func() bool {
		return strings.Contains(srv.Log.String(), "this process leads the moves now")
	})
	p.Run("rebalancer", "split", "abc", "--at", "b", "--admin", srv.Admin)
	require.Equal(t, "a\nb\n", p.Run("listd", "ls", "abc", "--server", srv.S3))
	p.Run("rebalancer", "verify", "--admin", srv.Admin)
	p.Run("rebalancer", s.Flags("verify", "--local-dc", "dc1")...)
	for _, key := range []string{"a", "b"} {
		require.Equal(t, 204, harness.Request(t, "DELETE", srv.S3+"/abc/"+key, "").Status)
	}
	p.Run("listd", "bucket", "delete", "abc", "--server", srv.S3)
	require.Equal(t, 0, srv.End(syscall.SIGTERM), srv.Log)
	require.NotContains(t, srv.Log.String(), "permission on", "nothing that it does is refused")

	grant(grants(roles[2])[2])
	srv = p.ServeSite(s)
	require.NotContains(t, srv.Log.String(), "system_views.settings")
	require.Equal(t, 0, srv.End(syscall.SIGTERM), srv.Log)
}
