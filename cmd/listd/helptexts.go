package main

import "github.com/alecthomas/kong"

// help holds the help texts of the flags that are too long for a struct tag. A tag refers to a text by the key of the
// text in help.
var help = kong.Vars{
	"store_data": "Directory of the embedded store; it is created if it does not exist.",
	"cluster_lease": "" +
		"On Cassandra: how long a server may use a map before it checks it again. All servers and rebalancers " +
		"of a keyspace need the same lease: the first one stores it, and processes with another one are " +
		"refused.",
	"cluster_change_lease": "" +
		"On Cassandra: store --lease, --max-clock-skew, and how sizes are counted (--counter) as those of the " +
		"keyspace. Only while no other server and no rebalancer uses it.",
	"cluster_max_clock_skew": "" +
		"On Cassandra: largest uncertainty of the common time of the nodes for a write. Each write takes at " +
		"least as long as the uncertainty, and beyond this limit writes are refused while reads continue. " +
		"Also the largest difference between the clocks of two data centres: beyond it writes are refused in " +
		"both, and it is assumed of clocks that can't be compared. All servers of a keyspace need the same, " +
		"like --lease.",
	"backup_progress": "How to show progress, on standard error: plain lines, none, or auto: lines on a terminal only.",
	"server_server_ca_file": "" +
		"Certificates (PEM) of the authorities to trust at an https:// server; by default the system's, or " +
		"those of the environment variable SSL_CERT_FILE.",
	"server_access_key": "Access key that signs requests; without one they are not signed.",
	"server_secret_key": "Secret of --access-key. Better set in the environment, where ps doesn't show it.",
	"load_cuts_file":    "With --create: begin with these cuts, one key per line, ascending, UTF-8 with \\xNN escapes.",
	"load_progress":     "auto, bar, plain (a line now and then) or none. auto is bar on a terminal.",
	"ls_format":         "text: keys with escapes; json: an object per line; null: raw keys, each ended by a NUL.",
	"rm_recursive":      "Delete all keys that begin with each KEY; without KEY all keys of the bucket.",
	"purge_dry_run":     "Count what would be deleted, and delete nothing. It reads all of it.",
	"purge_concurrency": "Concurrent requests where keys are deleted one by one.",
	"purge_progress":    "bar, plain, none, or auto: a bar on a terminal.",
	"rebalance_rebalance": "" +
		"On Cassandra: who moves ranges. here: this server stands by for it; elsewhere: never this one, for " +
		"instance because rebalancer run does. With --counter its writes are counted in any case.",
	"rebalance_admin_url": "" +
		"On Cassandra: URL by which other hosts reach the --admin address, to forward commands to the server " +
		"that leads the moves. By default http:// or https:// and the address.",
	"serve_insecure": "" +
		"Allow --listen on other than loopback addresses without authentication. Clients elsewhere need " +
		"--allow-host, too.",
	"serve_keys_file": "" +
		"YAML file of access keys: requests must be signed by one of them. It is read again when it changes; " +
		"while it is invalid, the keys read before stay in force.",
	"serve_https_cert_file": "" +
		"Serve the S3 address over TLS with this certificate (PEM, with its chain). It is read again when it " +
		"or its key changes.",
	"serve_host_suffix": "Also accept hosts BUCKET.NAME (virtual-host style), for these names, separated by commas.",
	"create_plain": "" +
		"A bucket of keys with metadata, as the library makes them: small bodies, no versions; listings in reverse, " +
		"with bounds and in parallel.",
	"serve_bodies": "" +
		"Where the bodies of objects above 4 KiB are kept: file:///DIRECTORY, or s3://BUCKET?endpoint=URL&region=NAME " +
		"with the access key in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; all servers of a keyspace share it. " +
		"Default: bodies in --data; with --cassandra such objects are refused.",
	"serve_bodies_new": "" +
		"Take a place of bodies without the mark _owner for a new one, although there are buckets of objects, or servers " +
		"have marked another one. Without it the server does not start then: a file system that is not mounted looks the " +
		"same.",
	"serve_md5_mib": "" +
		"Longest body, in MiB, whose ETag is its MD5. A longer one that is put whole, without Content-MD5, has an ETag " +
		"like that of a multipart upload: taking the MD5 limits a put to some 700 MB/s. 0: 4 KiB; 5120: all have an MD5.",
	"serve_clean_every": "" +
		"Time between two rounds over all buckets of objects that delete for good what was deleted or replaced; its " +
		"bodies are kept for a day. The servers of a keyspace share the buckets. 0: this server cleans none.",
	"serve_clean_all": "" +
		"Time between two rounds that look at all rows; the others follow hints that servers write with puts and deletes. " +
		"Buckets whose lifecycle rules ask for ages are read in each round. 0: all rounds look at all rows.",
	"serve_clean_rate": "" +
		"Most rows of buckets of objects, and bodies, that this server looks at per second; 0: no limit.",
	"serve_audit_every": "" +
		"Time between two audits by the server that cleans shard 0: they compare the versions of objects with their " +
		"bodies. The log, the status and the metrics have what they find. 0: this server makes none.",
	"serve_scrub_mib": "" +
		"Most MiB of bodies per second that are read to compare them with their checksums. Such scrubs go on beside " +
		"audits, each --audit-every after the last one has ended. 0: this server makes none.",
	"serve_condemn_orphans": "" +
		"Have the bodies deleted that audits find without a version, once they are older than 11 days, but none in a " +
		"bucket in which a body is lost. It is for good. Not after a restore until all rows are back: bodies whose rows " +
		"are missing look the same. Not where a copy of this store, as a restored one, has the same --bodies: each would " +
		"delete the other's.",
	"serve_allow_unsigned_payload": "" +
		"Accept signed requests whose signature does not cover the body also over plain HTTP from other than " +
		"loopback addresses. For servers behind a proxy that ends TLS: elsewhere an eavesdropper can send " +
		"such a request with another body.",
	"serve_refuse_v2": "" +
		"Refuse signatures of version 2, of all access keys. They do not cover bodies, the host, and parameters " +
		"such as the prefix of a listing; boto3, awscli and others presign URLs by them unless told otherwise.",
	"serve_admin": "" +
		"Address of /healthz, /readyz, /metrics, /debug/pprof and of the commands of rebalancer; empty for " +
		"none. Loopback only, unless there is a token or clients show certificates.",
	"serve_max_requests": "" +
		"Requests worked on at once; more are answered 503 SlowDown, and so is an access key, or address, " +
		"that has three times as many as are free. Requests whose body or answer is being sent do not count.",
	"serve_max_connections": "" +
		"Connections open at once on --listen, or fewer if the limit of open files requires it; of one " +
		"address three quarters at most. Another one replaces the address's connection that has waited " +
		"longest for its client, or is closed.",
	"serve_max_header_bytes": "" +
		"Largest request header. Continuation tokens of keys of more than 16 KiB, which only the library can " +
		"write, need more.",
	"serve_max_cuts": "Most cuts of a new bucket; one access key, or address, may make ten times as many in an hour.",
	"serve_min_rate": "" +
		"Least bytes per second that a client must send of a body of more than 64 KiB, or read of an answer " +
		"of more than 4 KiB, after 10 s.",
	"serve_body_timeout": "" +
		"How long a client may take to send a body; see --min-rate. Bodies of at most 64 KiB must arrive " +
		"within 5 s after --header-timeout.",
	"serve_answer_timeout": "" +
		"How long a client may take to read an answer, from the beginning of the answer on; see --min-rate. " +
		"Lists of all buckets, and bodies of objects that are read fast enough, may take longer.",
	"serve_shutdown_timeout": "" +
		"How long requests under way may continue after SIGTERM or SIGINT; a second signal ends the server at " +
		"once.",
	"serve_map_cache_mi_b": "" +
		"Memory for nodes of large maps of buckets. Beside it half as much is for roots of maps, of which each bucket " +
		"in use has one, and a name of a bucket is remembered for each 2 KiB.",
	"serve_request_log": "Requests to log: errors (answers of 400 and above) or all.",
	"serve_request_memory_mi_b": "" +
		"Memory for bodies, documents and pages of all requests together, until the answers are sent; " +
		"requests without room are answered 503 SlowDown. 0 for an eighth of the machine's memory, or of the " +
		"control group's limit, from 32 to 128 MiB.",
}
