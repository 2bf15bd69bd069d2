package cassandrastore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gocql/gocql"
)

// Versions of Cassandra. 5.0 is the first one that has all that the schema and the statements use; what a later major
// version changes is not known.
const oldestVersion, testedMajor = "5.0", 5

// checkVersions looks at the version of each node of the cluster: while a cluster is upgraded there are several, and a
// statement may reach any of them.
func (a *Admin) checkVersions(ctx context.Context) ([]Problem, error) {
	nodes := map[string][]string{} // addresses by version
	iter := a.session.Query("SELECT peer, release_version FROM system.peers").WithContext(ctx).Consistency(gocql.One).Iter()
	var peer, version string
	for iter.Scan(&peer, &version) {
		nodes[version] = append(nodes[version], peer)
	}
	// A node's peers are all nodes but itself. Another query might be answered by another node.
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

// versionProblem returns what is to be said about a node's version, empty if nothing.
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
