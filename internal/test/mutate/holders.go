package main

// holders are, for a package, the others whose tests hold it up as well. Those that
// need a Cassandra node are not among them.
var holders = map[string][]string{
	"counter":            {"counter/localcounter", "rebalance/balancer"},
	"internal/record":    {"partmap/mapclient", "rebalance/leader"},
	"internal/sigv4":     {"s3api"},
	"listing":            {"s3api", "internal/sim"},
	"partmap":            {"partmap/mapclient", "rebalance/migrate", "rebalance/executor", "listing", "internal/fsck", "internal/sim"},
	"partmap/mapclient":  {"rebalance/executor", "rebalance/manager", "listing", "internal/sim"},
	"rebalance/apply":    {"cmd/rebalancer"},
	"rebalance/cut":      {"rebalance/balancer"},
	"rebalance/executor": {"rebalance/manager", "internal/sim"},
	"rebalance/migrate":  {"rebalance/executor", "rebalance/manager", "rebalance/apply", "internal/sim"},
	"rebalance/policy":   {"rebalance/balancer"},
	"store/memstore":     {"store/faultstore", "partmap/mapclient"},
	"store/pebblestore":  {"listing"},
}
