package cassandratest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Options say what kind of cluster to start. The zero Options is a cluster of one node.
type Options struct {
	// DataCentres has the number of nodes of each data centre. The data centres are named dc1, dc2 and so on. An empty
	// list stands for one node in dc1.
	DataCentres []int
	// Racks puts each node of a data centre into a rack of its own: r1, r2 and so on. Without Racks all nodes are in
	// r1.
	Racks bool
	// DurableWrites makes nodes sync their commit log before they acknowledge a write (commitlog_sync: batch). Tests
	// that kill nodes need DurableWrites, as Cassandra's default (periodic) may lose the last ten seconds of a lone
	// node.
	DurableWrites bool
	// Passwords makes nodes demand a login. The first user is cassandra, with the password cassandra.
	Passwords bool
	// Grants lets users do only what was granted to them (CassandraAuthorizer). Grants needs Passwords.
	Grants bool
	// HeapMiB is the size of the Java heap of each node, in MiB. 0 stands for 512.
	HeapMiB int
	// Optimise makes Java fully optimise hot code, for benchmarks. It doubles the processor time of the start of a
	// node.
	Optimise bool
	// Patient gives each request half a minute on the node, instead of two to ten seconds. It is for nodes that no test
	// kills, so that a busy machine causes no failures.
	Patient bool
	// Apart puts each of two data centres into a network of its own. Between the networks is a Link, whose round trip
	// time can be set, and which can be cut. Apart needs Linux, root, the command ip of iproute2 and the device
	// /dev/net/tun. If the machine does not allow this, the start fails with ErrNoNetworks.
	Apart bool
	// Ahead is, for each data centre, how far the wall clocks of the nodes are ahead of this machine's. A negative
	// value means behind. Monotonic clocks do not change. Ahead needs a C compiler (cc).
	Ahead []time.Duration
	// Spare is the number of nodes that the method Add may add later.
	Spare int
	// Settings are further lines for the file cassandra.yaml of each node.
	Settings []string
}

func (o Options) heap() int {
	if o.HeapMiB == 0 {
		return 512
	}
	return o.HeapMiB
}

// writeConfig creates the directory of a node with its configuration files. seed is the address of the first node.
func (n *Node) writeConfig(seed string) error {
	for _, name := range []string{"conf", "data", "log", "triggers", "tmp"} {
		if err := os.MkdirAll(filepath.Join(n.dir, name), 0o755); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{
		"cassandra.yaml":              n.yaml(seed),
		"cassandra-rackdc.properties": "dc=" + n.DataCentre + "\nrack=" + n.rack + "\n",
		"logback.xml": `<configuration><appender name="F" class="ch.qos.logback.core.FileAppender"><file>` +
			n.logFile() +
			`</file><encoder><pattern>%-5level [%thread] %date{ISO8601} %F:%L - %msg%n</pattern></encoder></appender>` +
			`<root level="INFO"><appender-ref ref="F"/></root></configuration>`,
	} {
		if err := os.WriteFile(filepath.Join(n.dir, "conf", name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) logFile() string { return filepath.Join(n.dir, "log", "system.log") }

// yaml returns the content of cassandra.yaml for a small node. seed is the address of the first node. The format of
// sstables is BTI, which new clusters of version 5.0 should use, but which is not the default.
func (n *Node) yaml(seed string) string {
	data := filepath.Join(n.dir, "data")
	lines := []string{
		"cluster_name: evenkeel-test",
		"num_tokens: 4",
		"partitioner: org.apache.cassandra.dht.Murmur3Partitioner",
		fmt.Sprint("auto_bootstrap: ", n.joins),
		"data_file_directories: [" + filepath.Join(data, "data") + "]",
		"commitlog_directory: " + filepath.Join(data, "commitlog"),
		"saved_caches_directory: " + filepath.Join(data, "saved_caches"),
		"hints_directory: " + filepath.Join(data, "hints"),
		"cdc_raw_directory: " + filepath.Join(data, "cdc"),
		"endpoint_snitch: GossipingPropertyFileSnitch",
		"listen_address: " + n.Address,
		"rpc_address: " + n.Address,
		"native_transport_port: 9042",
		"storage_port: 7000",
		"start_native_transport: true",
		"seed_provider:",
		"  - class_name: org.apache.cassandra.locator.SimpleSeedProvider",
		`    parameters: [{seeds: "` + seed + `"}]`,
		"memtable_heap_space: 128MiB",
		"memtable_offheap_space: 128MiB",
		"memtable_allocation_type: offheap_objects",
		"concurrent_reads: 8",
		"concurrent_writes: 8",
		"key_cache_size: 16MiB",
		"file_cache_size: 64MiB",
		"auto_snapshot: false",
		"storage_compatibility_mode: NONE",
		"sstable:",
		"  selected_format: bti",
	}
	if n.options.DurableWrites {
		lines = append(lines, "commitlog_sync: batch")
	} else {
		lines = append(lines, "commitlog_sync: periodic", "commitlog_sync_period: 10000ms")
	}
	if n.options.Passwords {
		lines = append(lines, "authenticator: PasswordAuthenticator")
	}
	if n.options.Grants {
		lines = append(lines, "authorizer: CassandraAuthorizer", "role_manager: CassandraRoleManager")
	}
	if n.options.Patient {
		for _, name := range []string{"request", "read_request", "range_request", "write_request", "truncate_request",
			"cas_contention"} {
			lines = append(lines, name+"_timeout: 30s")
		}
	}
	return strings.Join(append(lines, n.options.Settings...), "\n") + "\n"
}

// javaArguments returns the arguments for Java to run the node: those that Cassandra 5.0 needs on Java 17 (as in
// conf/jvm17-server.options of Cassandra), with the sizes of a small node. lib is the directory of Cassandra's jars.
func (n *Node) javaArguments(lib string) []string {
	heap := fmt.Sprint(n.options.heap(), "M")
	args := []string{
		"-Xms" + heap, "-Xmx" + heap, "-XX:+ExitOnOutOfMemoryError", "-XX:ActiveProcessorCount=2",
		"-javaagent:" + filepath.Join(lib, "jamm-0.4.0.jar"),
		"-Djdk.attach.allowAttachSelf=true", "-Dio.netty.tryReflectionSetAccessible=true",
		"-Dcassandra.config=file:" + filepath.Join(n.dir, "conf", "cassandra.yaml"),
		"-Dcassandra-rackdc.properties=file:" + filepath.Join(n.dir, "conf", "cassandra-rackdc.properties"),
		"-Dcassandra.storagedir=" + filepath.Join(n.dir, "data"),
		"-Dcassandra.logdir=" + filepath.Join(n.dir, "log"),
		"-Dcassandra.triggers_dir=" + filepath.Join(n.dir, "triggers"),
		// Libraries that unpack code of the machine's kind leave it behind when killed.
		"-Djava.io.tmpdir=" + filepath.Join(n.dir, "tmp"),
		"-Dcassandra-foreground=yes",
		fmt.Sprintf("-Dcassandra.jmx.local.port=%d", n.jmxPort),
		"-Dlogback.configurationFile=file:" + filepath.Join(n.dir, "conf", "logback.xml"),
		// Cluster.AwaitUp waits until the nodes see each other: they need not. But a node gives up
		// that has no answer from the first one in this time, and a busy machine may need it.
		"-Dcassandra.ring_delay_ms=20000", "-Dcassandra.skip_wait_for_gossip_to_settle=0",
		// Each schema change would otherwise wait for a dozen flushes to disk. A test
		// that kills a node and starts it again calls Nodetool("flush") before.
		"-Dcassandra.unsafesystem=true",
		// Tests may ask what a replica itself has, at NodeLocal.
		"-Dcassandra.enable_nodelocal_queries=true",
		// A login is checked with bcrypt; 2^4 rounds instead of 2^10 keep that cheap.
		"-Dcassandra.superuser_setup_delay_ms=0", "-Dcassandra.auth_bcrypt_gensalt_log2_rounds=4",
	}
	if n.options.Optimise {
		args = append(args, "-XX:+UseG1GC")
	} else {
		// A node of a test lives for a minute, on a machine of few processors: what
		// counts is what it costs until it is up. These take a quarter off that.
		args = append(args, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:+UnlockDiagnosticVMOptions",
			"-XX:-BytecodeVerificationRemote")
	}
	if n.replaces != "" {
		args = append(args, "-Dcassandra.replace_address_first_boot="+n.replaces)
	}
	args = append(args, moduleArguments()...)
	return append(args, "-cp", filepath.Join(lib, "*"), "org.apache.cassandra.service.CassandraDaemon")
}

// moduleArguments returns the arguments that open those parts of Java's modules which Cassandra uses.
func moduleArguments() (args []string) {
	for _, export := range []string{
		"java.base/jdk.internal.misc", "java.base/java.lang.ref", "java.rmi/sun.rmi.registry",
		"java.rmi/sun.rmi.server",
		"java.management.rmi/com.sun.jmx.remote.internal.rmi", "java.sql/java.sql", "jdk.unsupported/sun.misc",
		"jdk.compiler/com.sun.tools.javac.file", "jdk.attach/sun.tools.attach",
	} {
		args = append(args, "--add-exports", export+"=ALL-UNNAMED")
	}
	for _, open := range []string{
		"java.base/java.lang.module", "java.base/jdk.internal.loader", "java.base/jdk.internal.ref",
		"java.base/jdk.internal.reflect", "java.base/jdk.internal.math", "java.base/jdk.internal.module",
		"java.base/jdk.internal.util.jar", "java.base/sun.nio.ch", "java.base/java.io", "java.base/java.lang.reflect",
		"java.base/java.lang", "java.base/java.util", "java.base/java.nio", "java.base/java.util.concurrent",
		"java.base/java.util.concurrent.atomic", "jdk.management/com.sun.management.internal",
		"jdk.compiler/com.sun.tools.javac",
	} {
		args = append(args, "--add-opens", open+"=ALL-UNNAMED")
	}
	return args
}
