package cassandrastore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gocql/gocql"
)

// oldestVersion is the oldest version of Cassandra that has everything that the store needs. testedMajor is the newest
// major version of Cassandra with which the store is tested.
const oldestVersion, testedMajor = "5.0", 5

// checkVersions returns the problems with the versions of Cassandra on the cluster's nodes. It looks at each node:
// while a cluster is upgraded there are several versions, and a statement may reach any of them.
func (a *admin) checkVersions(ctx context.Context) ([]Problem, error) {
	nodes := map[string][]string{} // addresses by version
	iter := a.session.Query("SELECT peer, release_version FROM system.peers").WithContext(ctx).Consistency(gocql.One).Iter()
	var peer, version string
	for iter.Scan(&peer, &version) {
		nodes[version] = append(nodes[version], peer)
	}
	// A node's peers are all nodes except itself. Another query might be answered by another node.
	if h := iter.Host(); h != nil {
		v := h.Version()
		version = fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch)
		nodes[version] = append(nodes[version], h.ConnectAddress().String())
	}
	if err := iter.Close(); err != nil {
		return nil, fail(ctx, err, "read", "the versions of the nodes")
	}
	var problems []Problem
	for _, version := range sorted(nodes) {
		if what, fatal := versionProblem(version); what != "" {
			slices.Sort(nodes[version])
			problems = append(problems, Problem{strings.Join(nodes[version], ", "), what, fatal})
		}
	}
	return problems, nil
}

// versionProblem returns what is wrong with a node's version of Cassandra, e.g. "4.1.3", or an empty string if nothing
// is wrong. The result fatal is true if the problem prevents Open.
func versionProblem(version string) (what string, fatal bool) {
	if version == "" {
		return "the node's version is not known to the node that was asked: look at `nodetool describecluster`", false
	}
	first, _, _ := strings.Cut(version, ".")
	switch major, err := strconv.Atoi(first); {
	case err != nil:
		return fmt.Sprintf("the version %q is not one of Cassandra: %s or later is needed", version, oldestVersion), true
	case major < testedMajor:
		return fmt.Sprintf("the version is %s: every write would be refused. Upgrade all nodes to %s or later, and run "+
			"`nodetool upgradesstables`", version, oldestVersion), true
	case major > testedMajor:
		return fmt.Sprintf("the version is %s: evenkeel is tested with %s only", version, oldestVersion), false
	}
	return "", false
}
