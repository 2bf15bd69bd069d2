package cassandrastore

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"log/slog"
	"os"
	"regexp"
	"time"

	"github.com/gocql/gocql"

	"github.com/evenkeel/evenkeel/store"
)

// Options of a Store. Hosts, DataCentre and Keyspace are required; other zero values are
// defaults.
type Options struct {
	// Hosts are addresses for the first contact, "host" or "host:port"; the driver finds
	// the other hosts of the local data centre.
	Hosts []string
	// Addresses has, for nodes that can't be reached at the "host:port" by which they and Hosts name them, the one at
	// which they can.
	Addresses map[string]string
	// DataCentre is the local data centre. Foreground requests never leave it.
	DataCentre string
	// Keyspace holds evenkeel's tables: lower-case letters, digits, underscores.
	Keyspace string
	// User and PasswordFile are the login, if the cluster requires one. The first line of
	// the file is the password.
	User, PasswordFile string
	// TLS encrypts connections; nil disables encryption.
	TLS *tls.Config
	// Consistency of the foreground.
	Consistency Consistency
	// ReadTimeout and WriteTimeout bound one attempt and should be above the
	// server's own (5 s and 2 s), or retries pile up on a slow server. Zero
	// means 5.5 s and 2.5 s. SwapTimeout, for lightweight transactions, is 5 s.
	ReadTimeout, WriteTimeout, SwapTimeout time.Duration
	// ConnectTimeout bounds each step of connecting; zero means 5 s.
	ConnectTimeout time.Duration
	// AllowSingleReplica accepts a keyspace with one replica, for trials.
	AllowSingleReplica bool
	// Log receives warnings; nil discards them.
	Log *slog.Logger
}

// Consistency is the level of each kind of foreground operation. The levels of movers
// (EachQuorum, lightweight transactions at SERIAL) are fixed.
type Consistency struct {
	// ReadRows, WriteRows, ReadRegisters (at level Local) and ReadNodes are
	// LocalQuorum if empty. With a weaker level an acknowledged put may not be visible.
	ReadRows, WriteRows, ReadRegisters, ReadNodes Level
	// CommitSwaps is the level at which a swap is committed before it is acknowledged;
	// empty means LocalQuorum.
	CommitSwaps Level
}

// Level is a consistency level.
type Level string

// The levels that can be configured. The weaker ones are for measurements.
const (
	LocalQuorum Level = "LOCAL_QUORUM"
	Quorum      Level = "QUORUM"
	Each        Level = "EACH_QUORUM"
	LocalOne    Level = "LOCAL_ONE"
)

func (l Level) driver() (gocql.Consistency, error) {
	switch l {
	case "", LocalQuorum:
		return gocql.LocalQuorum, nil
	case Quorum:
		return gocql.Quorum, nil
	case Each:
		return gocql.EachQuorum, nil
	case LocalOne:
		return gocql.LocalOne, nil
	}
	return 0, store.Errorf(store.InvalidArgument,
		"there is no consistency level %q: LOCAL_QUORUM, QUORUM, EACH_QUORUM or LOCAL_ONE", string(l))
}

// levels are Consistency in the driver's terms.
type levels struct {
	readRows, writeRows, readRegisters, readNodes, commitSwaps gocql.Consistency
}

func (c Consistency) levels() (l levels, err error) {
	for _, each := range []struct {
		from Level
		to   *gocql.Consistency
	}{
		{c.ReadRows, &l.readRows}, {c.WriteRows, &l.writeRows}, {c.ReadRegisters, &l.readRegisters},
		{c.ReadNodes, &l.readNodes}, {c.CommitSwaps, &l.commitSwaps},
	} {
		if *each.to, err = each.from.driver(); err != nil {
			return levels{}, err
		}
	}
	return l, nil
}

var keyspaceName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,47}$`)

// withDefaults sets defaults and checks the options.
func (o Options) withDefaults() (Options, error) {
	switch {
	case len(o.Hosts) == 0:
		return o, store.Errorf(store.InvalidArgument, "no Cassandra host is given")
	case o.DataCentre == "":
		return o, store.Errorf(store.InvalidArgument, "the local data centre is not given (nodetool status names them)")
	}
	if err := checkKeyspaceName(o.Keyspace); err != nil {
		return o, err
	}
	o.ReadTimeout = cmp.Or(o.ReadTimeout, 5500*time.Millisecond)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, 2500*time.Millisecond)
	o.SwapTimeout = cmp.Or(o.SwapTimeout, 5*time.Second)
	o.ConnectTimeout = cmp.Or(o.ConnectTimeout, 5*time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

func checkKeyspaceName(name string) error {
	if !keyspaceName.MatchString(name) {
		return store.Errorf(store.InvalidArgument, "the keyspace %q: a name has lower-case letters, digits and underscores, "+
			"begins with a letter and has at most 48 characters", name)
	}
	return nil
}

// authenticator reads the password file. It returns nil without a user.
func (o Options) authenticator() (gocql.Authenticator, error) {
	if o.User == "" {
		return nil, nil
	}
	if o.PasswordFile == "" {
		return nil, store.Errorf(store.InvalidArgument, "the Cassandra user %q has no password file", o.User)
	}
	text, err := os.ReadFile(o.PasswordFile)
	if err != nil {
		return nil, store.Errorf(store.InvalidArgument, "the password of the Cassandra user %q: %w", o.User, err)
	}
	password, _, _ := bytes.Cut(text, []byte("\n"))
	return gocql.PasswordAuthenticator{Username: o.User, Password: string(bytes.TrimRight(password, "\r"))}, nil
}
