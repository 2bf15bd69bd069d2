package main

// holders has, for a package, further packages whose tests also test it. Packages whose tests need a Cassandra node are
// left out.
var holders = map[string][]string{
	"counter":            {"internal/countbook", "counter/localcounter", "internal/rebalance/balancer"},
	"internal/countbook": {"counter/localcounter", "internal/rebalance/balancer"},
	"internal/keysample": {"internal/countbook", "counter"},
	"internal/record":    {"internal/mapclient", "internal/rebalance/leader"},
	"internal/mapcodec":  {"partmap", "internal/mapclient"},
	"internal/sigv4":     {"s3api"},
	"listing":            {"s3api", "internal/test/sim"},
	"partmap": {"internal/mapclient", "internal/rebalance/move", "internal/rebalance/executor", "listing",
		"internal/rebalance/repair", "internal/test/sim"},
	"internal/mapclient": {"internal/rebalance/executor", "internal/rebalance/scheduler", "listing",
		"internal/test/sim"},
	"internal/rebalance/executor": {"internal/rebalance/scheduler", "internal/test/sim"},
	"internal/rebalance/grid":     {"internal/rebalance/planner/exact", "rebalance", "rebalance/planner"},
	"internal/rebalance/move":     {"internal/rebalance/executor", "internal/rebalance/scheduler", "internal/test/sim"},
	"internal/rebalance/policy":   {"internal/rebalance/balancer"},
	"store/memstore":              {"internal/test/faultstore", "internal/mapclient"},
	"store/pebblestore":           {"listing"},
}
