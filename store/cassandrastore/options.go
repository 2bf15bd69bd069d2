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

// Options are the settings of a connection to Cassandra: addresses, login, consistency levels and time limits. Hosts,
// DataCentre and Keyspace are required. Zero values of the other fields stand for defaults.
type Options struct {
	// Hosts are addresses for the first contact, "host" or "host:port". The driver finds the other hosts of the local
	// data centre.
	Hosts []string
	// Addresses is for nodes that can't be reached at their own addresses, e.g. behind a network translation. The key
	// is the "host:port" by which the other nodes and Hosts name a node. The value is the address at which the node can
	// be reached.
	Addresses map[string]string
	// DataCentre is the name of the local data centre, as nodetool status shows it. Foreground requests never leave it.
	DataCentre string
	// Rack is the name of the local rack, as nodetool status shows it; empty for none. Of the nodes that have a row,
	// those in this rack are asked first. A quorum still includes nodes of other racks.
	Rack string
	// Keyspace is the name of the keyspace with evenkeel's tables. It has lower-case letters, digits and underscores.
	Keyspace string
	// User and PasswordFile are the login, if the cluster requires one. The first line of the file is the password.
	User, PasswordFile string
	// TLS encrypts connections; nil disables encryption.
	TLS *tls.Config
	// Consistency has the consistency levels of foreground operations.
	Consistency Consistency
	// ReadTimeout and WriteTimeout are the time limits of one attempt of a read or write. They should be above the
	// server's own limits (5 s and 2 s), or retries pile up on a slow server. Zero means 5.5 s and 2.5 s. SwapTimeout
	// is the time limit of a lightweight transaction; zero means 5 s.
	ReadTimeout, WriteTimeout, SwapTimeout time.Duration
	// ConnectTimeout is the time limit of each step of connecting; zero means 5 s.
	ConnectTimeout time.Duration
	// AllowSingleReplica accepts a keyspace that keeps only one copy of each row, for trials.
	AllowSingleReplica bool
	// Log receives warnings; nil discards them.
	Log *slog.Logger
}

// Consistency is the consistency level of each kind of foreground operation, such as reads of rows. Moves of rows
// between partitions have fixed levels: a quorum of each data centre and, for lightweight transactions, SERIAL.
type Consistency struct {
	// ReadRows, WriteRows, ReadRegisters (at store.Local) and ReadNodes are the levels of these reads and writes; empty
	// means LocalQuorum. With a weaker level a read may miss an acknowledged write.
	ReadRows, WriteRows, ReadRegisters, ReadNodes Level
	// CommitSwaps is the level at which a compare-and-swap is committed before it is acknowledged; empty means
	// LocalQuorum.
	CommitSwaps Level
}

// Level is the name of a consistency level of Cassandra, such as LOCAL_QUORUM.
type Level string

// These are the consistency levels that Options can choose. The levels weaker than LocalQuorum are for measurements
// only.
const (
	LocalQuorum Level = "LOCAL_QUORUM"
	Quorum      Level = "QUORUM"
	Each        Level = "EACH_QUORUM"
	LocalOne    Level = "LOCAL_ONE"
)

// driver returns the level in the driver's type. An empty Level stands for LocalQuorum. driver fails with
// InvalidArgument for an unknown name.
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

// levels are the consistency levels of a Consistency, one for each kind of operation, in the driver's type.
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

// keyspaceName matches the valid names of keyspaces.
var keyspaceName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,47}$`)

// withDefaults returns the options with defaults in place of zero values. It fails with InvalidArgument if a required
// option is missing, or the name of the keyspace is invalid.
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

// checkKeyspaceName returns an InvalidArgument error if name is no valid name of a keyspace.
func checkKeyspaceName(name string) error {
	if !keyspaceName.MatchString(name) {
		return store.Errorf(store.InvalidArgument, "the keyspace %q: a name has lower-case letters, digits and underscores, "+
			"begins with a letter and has at most 48 characters", name)
	}
	return nil
}

// authenticator returns the login of the options in the driver's type: the user, and the password from the first line
// of the password file. It returns nil if the options have no user, and fails with InvalidArgument if the file can't be
// read.
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
