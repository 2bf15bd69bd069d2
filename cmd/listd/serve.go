package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/evenkeel/evenkeel/internal/base/webguard"
	"github.com/evenkeel/evenkeel/internal/daemon"
	"github.com/evenkeel/evenkeel/internal/daemon/adminapi"
	"github.com/evenkeel/evenkeel/internal/daemon/adminserver"
	"github.com/evenkeel/evenkeel/internal/daemon/cassandraflags"
	"github.com/evenkeel/evenkeel/internal/daemon/logging"
	"github.com/evenkeel/evenkeel/internal/daemon/reload"
	"github.com/evenkeel/evenkeel/internal/daemon/secrecy"
	"github.com/evenkeel/evenkeel/rebalance"
	"github.com/evenkeel/evenkeel/s3api"
)

type serveCmd struct {
	Data          string   `default:"./evenkeel-data" help:"Directory of the embedded store, which holds everything; made if it isn't there."`
	Listen        string   `default:"127.0.0.1:9000" help:"Address of the S3 dialect; port 0 takes a free one."`
	Insecure      bool     `help:"Allow --listen on other than loopback addresses although nobody is authenticated. Clients elsewhere need --allow-host, too."`
	KeysFile      string   `placeholder:"FILE" help:"YAML file of access keys: requests have to be signed by one of them. It is read again when it changes; while it can't be used, the keys that were read stay in force."`
	HTTPSCertFile string   `name:"https-cert-file" placeholder:"FILE" help:"Serve the S3 address over TLS with this certificate (PEM, with its chain). It is read again when it or its key changes."`
	HTTPSKeyFile  string   `name:"https-key-file" placeholder:"FILE" help:"Private key (PEM) of --https-cert-file."`
	HostSuffix    []string `placeholder:"NAME" help:"Take the bucket's name from hosts BUCKET.NAME, too (virtual-host style). Names, separated by commas."`
	Region        string   `default:"us-east-1" help:"Region that GetBucketLocation answers, and that signatures have to be made for."`

	AllowUnsignedPayload bool `help:"Take signed requests whose signature does not cover the body also over plain HTTP from other than loopback addresses. For servers behind a proxy that ends TLS: else whoever sees such a request can send it with another body."`

	Admin       string            `default:"127.0.0.1:9001" help:"Address of /healthz, /readyz, /metrics, /debug/pprof and of the commands of rebalancer; empty for none. Loopback only, unless there is a token or clients show certificates."`
	AdminAccess adminserver.Flags `embed:""`

	MaxBodyBytes    int64         `default:"4096" help:"Largest object body that is kept."`
	MaxRequests     int           `default:"1024" help:"Requests worked for at once; more are answered 503 SlowDown, and so is an access key, or address, that has three times as many as are free. Bodies and answers on their way do not count."`
	MaxConnections  int           `default:"4096" help:"Connections kept at once on --listen, fewer where the limit of open files asks for it; of one address three quarters at most. One more takes the place of the address's own one that has waited for its client for longest, or is closed."`
	MaxHeaderBytes  int           `default:"32768" help:"Largest request header. Continuation tokens of keys of more than 16 KiB, which the library writes, need more room."`
	MaxCuts         int           `default:"10000" help:"Most cuts of a bucket that is created; ten times as many are those of one access key, or address, within an hour."`
	MinRate         int64         `default:"16384" help:"Bytes a second that a client has to send of a body of more than 64 KiB, or to read of an answer of more than 4 KiB, after 10 s."`
	RequestTimeout  time.Duration `default:"30s" help:"Longest work for one request."`
	HeaderTimeout   time.Duration `default:"10s" help:"How long a client may take to send a request's header."`
	BodyTimeout     time.Duration `default:"1m" help:"How long a client may take at most to send a body; see --min-rate. Bodies of at most 64 KiB have to come within 5 s after --header-timeout."`
	AnswerTimeout   time.Duration `default:"2m" help:"How long the work for a request and sending its answer may take at most, where a client reads slowly; see --min-rate. Lists of all buckets may take longer."`
	IdleTimeout     time.Duration `default:"2m" help:"How long an idle connection is kept."`
	ShutdownTimeout time.Duration `default:"10s" help:"How long requests under way may go on after SIGTERM or SIGINT; a second signal ends at once."`
	RequestLog      string        `default:"errors" enum:"errors,all" help:"Requests to log: errors (answers of 400 and above) or all."`

	RequestMemoryMiB int64 `name:"request-memory-mib" default:"0" help:"Memory for bodies, documents and pages of all requests together, until the answers are sent; more requests are answered 503 SlowDown. 0 for an eighth of the machine's memory, or of the limit of its control group: 32 to 128 MiB."`

	CacheMiB       int64         `name:"cache-mib" default:"128" help:"Memory for blocks of the embedded store."`
	MapCacheMiB    int64         `name:"map-cache-mib" default:"64" help:"Memory for maps of buckets."`
	TombstoneGrace time.Duration `default:"1h" help:"How long the embedded store remembers deletions, against writes that were delayed."`

	rebalanceFlags

	cassandraflags.Flags
	Lease        time.Duration `default:"3s" help:"On Cassandra: how long a server may act on a map without asking again. All servers and rebalancers of a keyspace need the same: the first one writes it down, another one is refused."`
	ChangeLease  bool          `help:"On Cassandra: write --lease and --max-clock-skew down as those of the keyspace. Only while no other server and no rebalancer runs on it."`
	Clocks       int           `default:"16" help:"On Cassandra: number of map clocks among which new buckets are spread."`
	MaxClockSkew time.Duration `default:"500ms" help:"On Cassandra: how exactly the common time of the nodes has to be known for a write; each write takes at least as long as it is inexact, and beyond this limit writes are refused while reads go on. Also how far the clocks of data centres that can't be compared are assumed to be apart. All servers of a keyspace need the same, as of --lease."`
}

func (*serveCmd) Help() string {
	return `Serves buckets in the S3 dialect from an embedded store, or from a keyspace
of a Cassandra cluster that any number of servers share. Prints the addresses once it
accepts connections, and logs to stderr. SIGTERM or SIGINT ends it cleanly; kill -9 loses
nothing that was acknowledged.

With --keys-file requests have to be signed (AWS Signature Version 4), and each key may
do what the file says, with everything, or only with buckets or prefixes. The last line
says that nothing is cut off:

  keys:
    - id: ADMIN
      secret: at least sixteen characters
      access: read-write
      everything: true
      key-bytes: any  # may store keys that are not UTF-8
    - id: REPORTS
      secret: another long secret
      access: read-only
      only: [photos, logs/2024/]
  complete: true

Without it nobody is authenticated: signatures are accepted and ignored, --listen takes
loopback addresses only, unless told --insecure, and requests have to name the server as
localhost, by a loopback address, by --host-suffix or by --allow-host. The same name
the admin address while there is no --admin-token.

Examples:

  listd serve
  listd serve --data /srv/evenkeel --listen 127.0.0.1:0
  listd serve --listen 0.0.0.0:9000 --keys-file /etc/listd/keys.yaml
  listd serve --listen 0.0.0.0:443 --keys-file keys.yaml --https-cert-file cert.pem \
    --https-key-file key.pem --host-suffix s3.example.com
  EVENKEEL_ADMIN_TOKEN=… listd serve --admin 0.0.0.0:9001 --admin-https-cert-file cert.pem \
    --admin-https-key-file key.pem
  rebalancer schema apply --cassandra 10.0.0.1 --replication dc1=3
  listd serve --cassandra 10.0.0.1,10.0.0.2 --local-dc dc1 --user listd --password-file /etc/listd/password

Exit codes: 0 ended by a signal; 1 failed (an address is taken, requests had to be cut
off); 2 bad flags or configuration; 3 the data directory or the keyspace can't be used.`
}

// Validate refuses limits that make no sense, before anything is opened.
func (s *serveCmd) Validate() error {
	for name, v := range map[string]int64{
		"max-body-bytes": s.MaxBodyBytes, "max-requests": int64(s.MaxRequests), "max-connections": int64(s.MaxConnections), "max-header-bytes": int64(s.MaxHeaderBytes),
		"header-timeout": int64(s.HeaderTimeout), "body-timeout": int64(s.BodyTimeout), "answer-timeout": int64(s.AnswerTimeout),
		"request-timeout": int64(s.RequestTimeout), "idle-timeout": int64(s.IdleTimeout), "shutdown-timeout": int64(s.ShutdownTimeout),
		"max-cuts": int64(s.MaxCuts), "min-rate": s.MinRate,
		"cache-mib": s.CacheMiB, "map-cache-mib": s.MapCacheMiB, "tombstone-grace": int64(s.TombstoneGrace),
	} {
		if v <= 0 {
			return fmt.Errorf("--%s must be above zero", name)
		}
	}
	if s.RequestMemoryMiB != 0 && s.RequestMemoryMiB < leastRequests {
		return fmt.Errorf("--request-memory-mib must be at least %d", leastRequests)
	}
	if s.MaxBodyBytes > maxValueBytes/2 {
		return fmt.Errorf("--max-body-bytes is at most %d: values are metadata here", maxValueBytes/2)
	}
	if (s.HTTPSCertFile == "") != (s.HTTPSKeyFile == "") {
		return fmt.Errorf("--https-cert-file and --https-key-file need each other")
	}
	for i, name := range s.HostSuffix {
		s.HostSuffix[i] = strings.ToLower(strings.Trim(name, ". "))
		if s.HostSuffix[i] == "" || strings.ContainsAny(s.HostSuffix[i], ":/* ") {
			return fmt.Errorf("--host-suffix %q is not the name of a host like s3.example.com", name)
		}
	}
	if err := s.rebalanceFlags.validate(len(s.Cassandra) > 0); err != nil {
		return err
	}
	return s.validateStore()
}

func (s *serveCmd) Run(ctx context.Context, c *cli, std stdio) error {
	log, lines := c.Log.Logger(std.err)
	defer lines.Tell()
	secrecy.Umask()
	listenAddr, err := resolve("--listen", s.Listen, s.Insecure || s.KeysFile != "", "--keys-file lets in who has a key; --insecure allows it: but then anybody who reaches the address reads and writes everything")
	if err != nil {
		return err
	}
	var keys *keysFile
	if s.KeysFile != "" {
		if keys, err = openKeys(s.KeysFile); err != nil {
			return daemon.UsageError("--keys-file %s: %w", s.KeysFile, err)
		}
		secrecy.WarnOfFile(log, "--keys-file", s.KeysFile)
	}
	if keys == nil && !listenAddr.IP.IsLoopback() && len(s.AdminAccess.AllowHost)+len(s.HostSuffix) == 0 {
		log.Warn("requests from other hosts will be refused: name this one, as they do, by --allow-host, or give --keys-file")
	}
	var cert *reload.Certificate
	if s.HTTPSCertFile != "" {
		if cert, err = reload.OpenCertificate(s.HTTPSCertFile, s.HTTPSKeyFile, ""); err != nil {
			return daemon.UsageError("--https-cert-file and --https-key-file: %w", err)
		}
		secrecy.WarnOfFile(log, "--https-key-file", s.HTTPSKeyFile)
	}
	if holdsSecrets(string(c.Config)) {
		secrecy.WarnOfFile(log, "--config", string(c.Config))
	}
	adminAccess, err := s.AdminAccess.Open(log)
	if err != nil {
		return daemon.Exit(exitUsage, err)
	}
	var adminAddr *net.TCPAddr
	if s.Admin != "" {
		if adminAddr, err = adminAccess.Resolve("--admin", s.Admin, log); err != nil {
			return daemon.Exit(exitUsage, err)
		}
	}
	files, err := openFiles()
	if err != nil {
		return err
	}
	share, err := shareFiles(files, s.MaxConnections)
	if err != nil {
		return daemon.Exit(exitUsage, err)
	}
	if share.connections < s.MaxConnections {
		log.Warn("fewer connections than --max-connections are kept, to leave files to the store: raise the limit of open files (ulimit -n)",
			"connections", share.connections, "wanted", s.MaxConnections, "files", files)
	}
	b, err := s.open(ctx, share.tables, log)
	if err != nil {
		return err
	}
	// Only now: while a store is being opened a signal ends the process as it
	// always does, which harms nothing.
	ctx, release := daemon.Signals(ctx)
	defer release()
	who := access{keys, cert, adminAccess, lines}
	err = s.serve(ctx, std, log, b, who, share.connections, listenAddr, adminAddr)
	if cerr := b.close(); err == nil && cerr != nil {
		err = cerr
	}
	return err
}

// access is who may reach the S3 address, and how; nil: anybody, without TLS; and the
// admin address; and what the log lets clients write.
type access struct {
	keys  *keysFile
	cert  *reload.Certificate
	admin *adminserver.Access
	lines *logging.Limit
}

// serve runs the servers over an open store until ctx ends.
func (s *serveCmd) serve(
	ctx context.Context, std stdio, log *slog.Logger, b *backend, who access,
	connections int, listenAddr, adminAddr *net.TCPAddr,
) error {
	registry := prometheus.NewRegistry()
	if err := registry.Register(who.lines.Metric()); err != nil {
		return err
	}
	if err := registry.Register(mapMetrics{b.buckets.Maps()}); err != nil {
		return err
	}
	guard, err := webguard.New(s.AdminAccess.AllowHost, s.HostSuffix)
	if err != nil {
		return daemon.UsageError("--allow-host: %w", err)
	}
	listener, err := net.ListenTCP("tcp", listenAddr)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	defer listener.Close()
	memory := s.requestMemory(machineMemory("/"))
	s.limitMemory(memory)
	scheme := "http"
	var s3Listener net.Listener = &headerLimit{Listener: listener, sealed: who.cert != nil, most: memory / 4}
	if who.cert != nil {
		scheme, s3Listener = "https", tls.NewListener(s3Listener, who.cert.Config())
		go who.cert.Run(ctx, log)
	}
	s3 := &http.Server{
		// Larger bodies get more time from their requests; see s3api.Options.MinRate.
		ReadHeaderTimeout: s.HeaderTimeout, ReadTimeout: min(s.BodyTimeout, s.HeaderTimeout+smallBodyTime),
		WriteTimeout: s.AnswerTimeout, IdleTimeout: s.IdleTimeout, MaxHeaderBytes: s.MaxHeaderBytes,
		ErrorLog: logging.ErrorLog(log),
	}
	defer s3.Close()
	limit := daemon.LimitConns(s3Listener, connections, s3, true)
	limitState := s3.ConnState
	s3.ConnState = func(c net.Conn, state http.ConnState) {
		countHeader(c, state)
		limitState(c, state)
	}
	options := s3api.Options{
		MemoryBytes: memory, MaxCuts: s.MaxCuts, MinRate: s.MinRate,
		BodyTimeout: s.BodyTimeout, AnswerTimeout: s.AnswerTimeout, Busy: limit.Busy,
		Region: s.Region, MaxBodyBytes: s.MaxBodyBytes, MaxRequests: s.MaxRequests, RequestTimeout: s.RequestTimeout,
		Logger: log, LogEvery: s.RequestLog == "all", Metrics: registry,
		SoleWriter: len(s.Cassandra) == 0, HostSuffixes: s.HostSuffix, Guard: guard,
		AllowUnsignedPayload: s.AllowUnsignedPayload,
	}
	if who.keys != nil {
		options.Keys = who.keys
		go who.keys.Run(ctx, log)
	}
	if s3.Handler, err = s3api.New(s3api.Over(b.buckets), options); err != nil {
		return daemon.Exit(exitUsage, err)
	}
	var admin *adminserver.Server
	adminURL := ""
	if adminAddr != nil {
		admin, err = adminserver.Listen(adminserver.Options{
			Access: who.admin, Address: adminAddr, Registry: registry, Store: b.store, Buckets: b.buckets, Log: log,
		})
		if err != nil {
			return fmt.Errorf("--admin: %w", err)
		}
		defer admin.Close()
		adminURL = admin.URL()
	}
	keeper := s.keeper(b, log, adminURL)
	if err := registry.Register(rebalance.Metrics{Rebalancer: keeper, Recorder: b.recorder}); err != nil {
		return err
	}
	failed := make(chan error, 2)
	if admin != nil {
		go func() { failed <- admin.Serve(adminapi.New(keeper)) }()
	}
	go func() { failed <- s3.Serve(limit) }()
	moving, stopMoving := context.WithCancel(ctx)
	var moved sync.WaitGroup
	moved.Go(func() { _ = keeper.Run(moving) }) // it logs its errors
	// The store is closed only when nothing moves.
	defer moved.Wait()
	defer stopMoving()

	fmt.Fprintf(std.out, "S3 on %s://%s\n", scheme, listener.Addr())
	if admin != nil {
		fmt.Fprintf(std.out, "admin on %s\n", adminURL)
	}
	log.Info("serving", append(b.where, "listen", listener.Addr().String(), "version", daemon.Version())...)

	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	log.Info("ending: waiting for requests under way", "at most", s.ShutdownTimeout)
	ending, cancel := context.WithTimeout(context.Background(), s.ShutdownTimeout)
	defer cancel()
	if admin != nil {
		admin.Drain()
	}
	err = s3.Shutdown(ending)
	if admin != nil {
		err = errors.Join(err, admin.Shutdown(ending))
	}
	if err != nil {
		_ = s3.Close()
		return fmt.Errorf("requests were cut off after %v", s.ShutdownTimeout)
	}
	return nil
}

// smallBodyTime is how long a small body may take after the header.
const smallBodyTime = 5 * time.Second

// resolve looks up an address to listen on, which must be a loopback one unless
// open.
func resolve(flag, address string, open bool, hint string) (*net.TCPAddr, error) {
	a, err := adminserver.Resolve(flag, address, open, hint)
	if err != nil {
		return nil, daemon.Exit(exitUsage, err)
	}
	return a, nil
}
