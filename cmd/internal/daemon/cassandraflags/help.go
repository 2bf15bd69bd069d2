package cassandraflags

import "github.com/alecthomas/kong"

// Help holds the help texts of the flags that are too long for a struct tag. A tag refers to a text by the key of the
// text in Help.
var Help = kong.Vars{
	"cassandra_cassandra": "" +
		"Use this Cassandra cluster: contact points, host or host:port, separated by commas. The other nodes " +
		"are found automatically.",
	"cassandra_address_map": "" +
		"Addresses at which nodes are reached, as behind a translation of addresses (containers, NAT): each FROM=TO, as " +
		"HOST:PORT. FROM is what --cassandra or other nodes call a node, and TO where it answers.",
	"cassandra_local_dc": "" +
		"Data centre whose nodes are used, by the name that nodetool status shows. Reads and writes of keys " +
		"stay within it.",
	"cassandra_local_rack": "" +
		"Rack (availability zone) whose nodes are asked first, of those that have a row. Useful where traffic between racks " +
		"is slow or costs money, and as many processes run in each.",
	"cassandra_tlsca_file":      "Certificates (PEM) of the authorities to trust, by default the system's.",
	"cassandra_tls_cert_file":   "Client certificate (PEM), if Cassandra requires one.",
	"cassandra_tls_server_name": "Name that every node's certificate must have, by default the node's address.",
	"consistency_read_rows": "" +
		"Consistency of gets and listings. LOCAL_ONE, here or below, is for measurements: acknowledged writes " +
		"may not be seen.",
	"consistency_write_rows": "Consistency of puts and deletes.",
	"consistency_read_roots": "Consistency of reading roots, map clocks and names of buckets.",
	"consistency_read_nodes": "Consistency of reading the rest of a map.",
	"consistency_swaps":      "Consistency at which a change of a map is applied; the swap itself is at SERIAL.",
}
