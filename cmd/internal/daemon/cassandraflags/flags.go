// Package cassandraflags has the command-line flags by which a program reaches evenkeel's keyspace in Cassandra.
package cassandraflags

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/secrecy"
	"github.com/evenkeel/evenkeel/internal/reload"
	"github.com/evenkeel/evenkeel/internal/webguard"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
)

// KeyspaceFlag is the flag --keyspace, the name of the keyspace in Cassandra. Commands embed KeyspaceFlag alone if they
// need only the name, and no connection to a cluster.
type KeyspaceFlag struct {
	Keyspace string `default:"evenkeel" help:"Keyspace that holds evenkeel's tables."`
}

// Flags are the command-line flags by which a program reaches a Cassandra cluster, e.g. --cassandra and --user. The
// command-line parser kong fills the fields.
type Flags struct {
	Cassandra  []string `placeholder:"HOST" sep:"," help:"${cassandra_cassandra=}"`
	AddressMap []string `rare:"" placeholder:"FROM=TO" sep:"," help:"${cassandra_address_map=}"`
	KeyspaceFlag
	LocalDC            string      `name:"local-dc" placeholder:"NAME" help:"${cassandra_local_dc=}"`
	LocalRack          string      `rare:"" placeholder:"NAME" help:"${cassandra_local_rack=}"`
	User               string      `placeholder:"NAME" help:"User to log in to Cassandra as."`
	PasswordFile       string      `placeholder:"FILE" help:"File whose first line is the user's password."`
	TLS                bool        `name:"tls" help:"Encrypt connections to Cassandra and verify its certificates."`
	TLSCAFile          string      `rare:"" name:"tls-ca-file" placeholder:"FILE" help:"${cassandra_tlsca_file=}"`
	TLSCertFile        string      `rare:"" name:"tls-cert-file" placeholder:"FILE" help:"${cassandra_tls_cert_file=}"`
	TLSKeyFile         string      `rare:"" name:"tls-key-file" placeholder:"FILE" help:"Private key (PEM) of --tls-cert-file."`
	TLSServerName      string      `rare:"" name:"tls-server-name" placeholder:"NAME" help:"${cassandra_tls_server_name=}"`
	Consistency        Consistency `embed:"" prefix:"consistency-"`
	AllowSingleReplica bool        `rare:"" negatable:"" help:"Accept a keyspace with one replica: for trials."`
}

// Consistency holds the flags --consistency-…: for each kind of operation, such as reads of rows, the consistency level
// of Cassandra, e.g. LOCAL_QUORUM.
type Consistency struct {
	ReadRows  string `rare:"" default:"LOCAL_QUORUM" enum:"LOCAL_QUORUM,QUORUM,EACH_QUORUM,LOCAL_ONE" help:"${consistency_read_rows=}"`
	WriteRows string `rare:"" default:"LOCAL_QUORUM" enum:"LOCAL_QUORUM,QUORUM,EACH_QUORUM,LOCAL_ONE" help:"${consistency_write_rows=}"`
	ReadRoots string `rare:"" default:"LOCAL_QUORUM" enum:"LOCAL_QUORUM,QUORUM,EACH_QUORUM" help:"${consistency_read_roots=}"`
	ReadNodes string `rare:"" default:"LOCAL_QUORUM" enum:"LOCAL_QUORUM,QUORUM,EACH_QUORUM" help:"${consistency_read_nodes=}"`
	Swaps     string `rare:"" default:"LOCAL_QUORUM" enum:"LOCAL_QUORUM,QUORUM,EACH_QUORUM" help:"${consistency_swaps=}"`
}

// Changed returns the names of the flags about Cassandra whose values differ from their defaults, such as "--user". If
// no cluster is named, a command reports the flags as mistakes.
func (f *Flags) Changed() []string { return daemon.Changed(f) }

// Options checks the flags, reads the TLS files, and returns the options for opening the store in Cassandra. An error
// says what the user should do. Options writes warnings to log, e.g. about a password that goes over the network
// without TLS. If log is nil, Options leaves the warnings out.
func (f *Flags) Options(log *slog.Logger) (cassandrastore.Options, error) {
	if len(f.Cassandra) == 0 {
		return cassandrastore.Options{}, errors.New("--cassandra is missing: name one or more nodes of the cluster")
	}
	for _, host := range f.Cassandra {
		if strings.TrimSpace(host) == "" {
			return cassandrastore.Options{},
				errors.New("--cassandra names a node without a name: HOST or HOST:PORT, separated by commas")
		}
	}
	if f.User == "" && f.PasswordFile != "" {
		return cassandrastore.Options{}, errors.New("--password-file needs --user")
	}
	if f.User != "" && f.PasswordFile == "" {
		return cassandrastore.Options{}, errors.New("--user needs --password-file")
	}
	addresses, err := addresses(f.AddressMap)
	if err != nil {
		return cassandrastore.Options{}, err
	}
	encryption, err := f.tls()
	if err != nil {
		return cassandrastore.Options{}, err
	}
	if log != nil && f.User != "" {
		secrecy.WarnOfFile(log, "--password-file", f.PasswordFile)
		away := func(host string) bool { return !webguard.LoopbackAddress(host) }
		if encryption == nil && slices.ContainsFunc(f.Cassandra, away) {
			log.Warn("the password of --user goes to Cassandra in the clear: give --tls", "cassandra", f.Cassandra)
		}
	}
	secrecy.WarnOfFile(log, "--tls-key-file", f.TLSKeyFile)
	c := f.Consistency
	if one := string(cassandrastore.LocalOne); log != nil && (c.ReadRows == one || c.WriteRows == one) {
		log.Warn("consistency LOCAL_ONE: acknowledged writes may not be seen, and may be lost with a node")
	}
	return cassandrastore.Options{
		Hosts: f.Cassandra, Addresses: addresses, DataCentre: f.LocalDC, Rack: f.LocalRack, Keyspace: f.Keyspace,
		User: f.User, PasswordFile: f.PasswordFile,
		TLS: encryption,
		Consistency: cassandrastore.Consistency{
			ReadRows: cassandrastore.Level(c.ReadRows), WriteRows: cassandrastore.Level(c.WriteRows),
			ReadRegisters: cassandrastore.Level(c.ReadRoots), ReadNodes: cassandrastore.Level(c.ReadNodes),
			CommitSwaps: cassandrastore.Level(c.Swaps),
		},
		AllowSingleReplica: f.AllowSingleReplica, Log: log,
	}, nil
}

// addresses parses the pairs FROM=TO of the flag --address-map into a map from FROM to TO. FROM is the address by which
// the cluster names a node, and TO the address at which this program reaches the node. Both have the form HOST:PORT.
func addresses(pairs []string) (map[string]string, error) {
	all := map[string]string{}
	for _, pair := range pairs {
		from, to, _ := strings.Cut(pair, "=")
		for _, address := range []string{from, to} {
			host, port, err := net.SplitHostPort(address)
			if _, number := strconv.ParseUint(port, 10, 16); err != nil || number != nil || host == "" {
				return nil, fmt.Errorf("--address-map: %q is not FROM=TO, each as HOST:PORT", pair)
			}
		}
		if all[from] != "" {
			return nil, fmt.Errorf("--address-map has %s twice", from)
		}
		all[from] = to
	}
	return all, nil
}

func (f *Flags) tls() (*tls.Config, error) {
	if !f.TLS {
		for _, flag := range []struct{ name, value string }{
			{"tls-ca-file", f.TLSCAFile}, {"tls-cert-file", f.TLSCertFile}, {"tls-key-file", f.TLSKeyFile},
			{"tls-server-name", f.TLSServerName},
		} {
			if flag.value != "" {
				return nil, fmt.Errorf("--%s needs --tls", flag.name)
			}
		}
		return nil, nil
	}
	c, err := reload.ClientTLS("--tls", f.TLSCAFile, f.TLSCertFile, f.TLSKeyFile)
	if err != nil {
		return nil, err
	}
	c.ServerName = f.TLSServerName
	return c, nil
}
