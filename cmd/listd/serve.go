package main

import (
	"cmp"
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

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/adminserver"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/bodies"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/logging"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/secrecy"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/tracing"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/version"
	"github.com/evenkeel/evenkeel/internal/adminapi"
	"github.com/evenkeel/evenkeel/internal/assembly"
	"github.com/evenkeel/evenkeel/internal/cleaning"
	"github.com/evenkeel/evenkeel/internal/console"
	"github.com/evenkeel/evenkeel/internal/hints"
	"github.com/evenkeel/evenkeel/internal/rebalance/engine"
	"github.com/evenkeel/evenkeel/internal/reload"
	"github.com/evenkeel/evenkeel/internal/webguard"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/s3api"
)

type serveCmd struct {
	storeFlags    `group:"Embedded store:"`
	Listen        string   `default:"127.0.0.1:9000" help:"Address of the S3 dialect; port 0 takes a free one."`
	Insecure      bool     `help:"${serve_insecure=}"`
	KeysFile      string   `placeholder:"FILE" help:"${serve_keys_file=}"`
	HTTPSCertFile string   `name:"https-cert-file" placeholder:"FILE" help:"${serve_https_cert_file=}"`
	HTTPSKeyFile  string   `name:"https-key-file" placeholder:"FILE" help:"Private key (PEM) of --https-cert-file."`
	HostSuffix    []string `placeholder:"NAME" help:"${serve_host_suffix=}"`
	Region        string   `default:"us-east-1" help:"Region of signatures, and the answer of GetBucketLocation."`

	Bodies     string        `placeholder:"URL" help:"${serve_bodies=}"`
	BodiesNew  bool          `env:"-" help:"${serve_bodies_new=}"`
	MD5MiB     int64         `name:"md5-mib" env:"EVENKEEL_MD5_MIB" default:"16" help:"${serve_md5_mib=}"`
	CleanEvery time.Duration `default:"1h" help:"${serve_clean_every=}"`
	CleanAll   time.Duration `name:"clean-all-every" default:"168h" help:"${serve_clean_all=}"`
	CleanRate  int           `default:"20000" help:"${serve_clean_rate=}"`
	AuditEvery time.Duration `default:"168h" help:"${serve_audit_every=}"`

	ScrubMiB       int  `name:"scrub-mib-per-second" default:"0" help:"${serve_scrub_mib=}"`
	CondemnOrphans bool `help:"${serve_condemn_orphans=}"`

	AllowUnsignedPayload bool `help:"${serve_allow_unsigned_payload=}"`
	RefuseSignature2     bool `name:"refuse-signature-v2" env:"EVENKEEL_REFUSE_SIGNATURE_V2" help:"${serve_refuse_v2=}"`

	Admin       string            `group:"Admin address:" default:"127.0.0.1:9001" help:"${serve_admin=}"`
	AdminAccess adminserver.Flags `embed:"" group:"Admin address:"`

	MaxBodyBytes    int64         `default:"4096" help:"Largest body in a plain bucket."`
	MaxRequests     int           `default:"1024" help:"${serve_max_requests=}"`
	MaxConnections  int           `default:"4096" help:"${serve_max_connections=}"`
	MaxHeaderBytes  int           `default:"32768" help:"${serve_max_header_bytes=}"`
	MaxCuts         int           `default:"10000" help:"${serve_max_cuts=}"`
	MinRate         int64         `default:"16384" help:"${serve_min_rate=}"`
	RequestTimeout  time.Duration `default:"30s" help:"Longest time of work for one request."`
	HeaderTimeout   time.Duration `default:"10s" help:"How long a client may take to send a request's header."`
	BodyTimeout     time.Duration `default:"1m" help:"${serve_body_timeout=}"`
	AnswerTimeout   time.Duration `default:"2m" help:"${serve_answer_timeout=}"`
	IdleTimeout     time.Duration `default:"2m" help:"How long an idle connection is kept."`
	ShutdownTimeout time.Duration `default:"10s" help:"${serve_shutdown_timeout=}"`
	RequestLog      string        `default:"errors" enum:"errors,all" help:"${serve_request_log=}"`

	RequestMemoryMiB int64 `name:"request-memory-mib" default:"0" help:"${serve_request_memory_mi_b=}"`

	MapCacheMiB int64 `name:"map-cache-mib" default:"64" help:"${serve_map_cache_mi_b=}"`

	rebalanceFlags `group:"Sizes and moves:"`

	clusterFlags `group:"Cassandra:"`
}

func (*serveCmd) Help() string {
	return `Serves buckets in the S3 dialect from an embedded store, or from a keyspace
of a Cassandra cluster that any number of servers share. Prints the addresses once it
accepts connections, and logs to stderr. SIGTERM or SIGINT ends it cleanly; kill -9 loses
nothing that was acknowledged.

With --keys-file requests must be signed (AWS Signature Version 4, or 2 as some SDKs presign
URLs), and the file says which operations each key allows, and on everything or on which
buckets or prefixes. Its last line shows that it is complete:

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
      signatures: v4  # none of version 2
  complete: true

Without it there is no authentication: signatures are ignored, --listen must be a loopback
address unless --insecure is given, and requests must name the server as localhost, by a
loopback address, by --host-suffix or by --allow-host. The same holds for the admin address
without --admin-token.

Examples:

  listd serve
  listd serve --data /srv/evenkeel --listen 127.0.0.1:0
  listd serve --listen 0.0.0.0:9000 --keys-file /etc/listd/keys.yaml
  listd serve --listen 0.0.0.0:443 --keys-file keys.yaml --https-cert-file cert.pem \
    --https-key-file key.pem --host-suffix s3.example.com
  EVENKEEL_ADMIN_TOKEN=… listd serve --admin 0.0.0.0:9001 --admin-https-cert-file cert.pem \
    --admin-https-key-file key.pem
  rebalancer schema apply --cassandra 10.0.0.1 --replication dc1=3
  listd serve --cassandra 10.0.0.1,10.0.0.2 --local-dc dc1 --user listd --password-file /etc/listd/password \
    --counter redis://10.0.0.9:6379/0
  AWS_ACCESS_KEY_ID=… AWS_SECRET_ACCESS_KEY=… listd serve --bodies 's3://bodies?endpoint=http://10.0.0.5:9000'

Exit codes: 0 ended by a signal; 1 failed (an address is taken, requests had to be cut
off); 2 bad flags or configuration; 3 the data directory or the keyspace can't be used.`
}

// mostBodyMiB is the largest size, in MiB, of a body that a client can put by one request: 5 GiB.
const mostBodyMiB = 5 << 10

// md5Bytes returns the flag --md5-mib in bytes, in the form of objects.Options.MD5Bytes. The result is -1 if the flag
// is 0.
func (s *serveCmd) md5Bytes() int64 {
	if s.MD5MiB == 0 {
		return -1
	}
	return s.MD5MiB << 20
}

// Validate returns an error if a flag of the command serve has an invalid value. The command-line parser kong calls
// Validate before any file or store is opened.
func (s *serveCmd) Validate() error {
	for name, v := range map[string]int64{
		"max-body-bytes": s.MaxBodyBytes, "max-requests": int64(s.MaxRequests), "max-connections": int64(s.MaxConnections),
		"max-header-bytes": int64(s.MaxHeaderBytes),
		"header-timeout":   int64(s.HeaderTimeout), "body-timeout": int64(s.BodyTimeout),
		"answer-timeout":  int64(s.AnswerTimeout),
		"request-timeout": int64(s.RequestTimeout), "idle-timeout": int64(s.IdleTimeout),
		"shutdown-timeout": int64(s.ShutdownTimeout),
		"max-cuts":         int64(s.MaxCuts), "min-rate": s.MinRate,
		"cache-mib": s.CacheMiB, "map-cache-mib": s.MapCacheMiB, "tombstone-grace": int64(s.TombstoneGrace),
	} {
		if v <= 0 {
			return fmt.Errorf("--%s must be above zero", name)
		}
	}
	if s.CleanEvery < 0 || s.CleanAll < 0 || s.CleanRate < 0 || s.AuditEvery < 0 || s.ScrubMiB < 0 {
		return errors.New("--clean-every, --clean-all-every, --clean-rate, --audit-every and --scrub-mib-per-second are " +
			"not negative")
	}
	if s.ScrubMiB > 0 && s.AuditEvery == 0 {
		return errors.New("--scrub-mib-per-second is for scrubs, made as often as audits: --audit-every 0 makes none")
	}
	if s.MD5MiB < 0 || s.MD5MiB > mostBodyMiB {
		return fmt.Errorf("--md5-mib is at least 0 and at most %d, the longest body", mostBodyMiB)
	}
	if s.CondemnOrphans && s.AuditEvery == 0 {
		return errors.New("--condemn-orphans deletes what audits find: --audit-every 0 makes none")
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
	if _, _, err := s.bodiesPlace(); err != nil {
		return err
	}
	return s.validateStore()
}

// opened holds everything that the server needs, checked and opened: the stores, certificates, access keys, and the
// addresses to listen on.
type opened struct {
	db            *assembly.DB
	bodies        bodies.Store
	where         []any               // attributes of the log line that names the store
	keys          *keysFile           // nil: no authentication
	cert          *reload.Certificate // nil: no TLS
	access        *adminserver.Access
	traces        *tracing.Tracing
	lines         *logging.Limit
	connections   int
	listen, admin *net.TCPAddr // admin is nil without an admin address
}

func (s *serveCmd) Run(ctx context.Context, c *cli, std stdio) (err error) {
	log, lines := c.Log.Logger(std.err)
	defer lines.Report()
	log.Info("listd starts", version.Current().Attrs()...)
	secrecy.Umask()
	o := opened{lines: lines}
	o.listen, err = adminserver.Resolve("--listen", s.Listen, s.Insecure || s.KeysFile != "",
		"--keys-file allows it for clients with a key; --insecure allows it without: "+
			"then everybody who reaches the address reads and writes everything")
	if err != nil {
		return daemon.Exit(daemon.ExitUsage, err)
	}
	if s.KeysFile != "" {
		if o.keys, err = openKeys(s.KeysFile); err != nil {
			return daemon.UsageError("--keys-file %s: %w", s.KeysFile, err)
		}
		secrecy.WarnOfFile(log, "--keys-file", s.KeysFile)
	}
	if o.keys == nil && !o.listen.IP.IsLoopback() && len(s.AdminAccess.AllowHost)+len(s.HostSuffix) == 0 {
		log.Warn("requests from other hosts will be refused: " +
			"give the names that they use for this one by --allow-host, or give --keys-file")
	}
	if s.HTTPSCertFile != "" {
		if o.cert, err = reload.OpenCertificate(s.HTTPSCertFile, s.HTTPSKeyFile, ""); err != nil {
			return daemon.UsageError("--https-cert-file and --https-key-file: %w", err)
		}
		secrecy.WarnOfFile(log, "--https-key-file", s.HTTPSKeyFile)
	}
	secrecy.WarnOfSettings(log, string(c.Config))
	if o.access, err = s.AdminAccess.Open(log); err != nil {
		return daemon.Exit(daemon.ExitUsage, err)
	}
	if s.Admin != "" {
		if o.admin, err = o.access.Resolve("--admin", s.Admin, log); err != nil {
			return daemon.Exit(daemon.ExitUsage, err)
		}
	}
	files, err := openFiles()
	if err != nil {
		return err
	}
	share, err := shareFiles(files, s.MaxConnections)
	if err != nil {
		return daemon.Exit(daemon.ExitUsage, err)
	}
	if o.connections = share.connections; o.connections < s.MaxConnections {
		log.Warn("fewer connections than --max-connections are kept, to leave files to the store: "+
			"raise the limit of open files (ulimit -n)",
			"connections", share.connections, "wanted", s.MaxConnections, "files", files)
	}
	if o.traces, err = tracing.Open(ctx, "listd", log); err != nil {
		return daemon.Exit(daemon.ExitUsage, err)
	}
	defer o.traces.End()
	if o.db, o.where, err = s.open(ctx, share.tables, o.traces, log); err != nil {
		return err
	}
	if o.bodies, err = s.openBodies(ctx, o.db, log); err != nil {
		return errors.Join(daemon.Exit(daemon.ExitUnusable, err), o.db.Close())
	}
	// Signals are caught from here on. While the store is being opened a signal ends the process at once, which is
	// harmless.
	ctx, release := daemon.Signals(ctx)
	defer release()
	return cmp.Or(s.serve(ctx, std, log, o), o.db.Close(), o.bodies.Close())
}

// serve answers requests and does the background work until ctx ends. Then serve waits until the requests under way
// have ended, but at most for --shutdown-timeout.
func (s *serveCmd) serve(ctx context.Context, std stdio, log *slog.Logger, o opened) error {
	registry := prometheus.NewRegistry()
	registry.MustRegister(o.lines.Metric(), mapMetrics{o.db.Client}, storeMetrics{o.db.Store})
	guard, err := webguard.New(s.AdminAccess.AllowHost, s.HostSuffix)
	if err != nil {
		return daemon.UsageError("--allow-host: %w", err)
	}
	listener, err := net.ListenTCP("tcp", o.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	defer listener.Close()
	memory := s.requestMemory(machineMemory("/"))
	s.limitMemory(memory)
	scheme := "http"
	var s3Listener net.Listener = &headerLimit{Listener: listener, sealed: o.cert != nil, most: memory / 4}
	if o.cert != nil {
		scheme, s3Listener = "https", tls.NewListener(s3Listener, o.cert.Config())
		go o.cert.Run(ctx, log)
	}
	s3 := &http.Server{
		// ReadTimeout holds for small bodies. The handler extends the time for a larger one; see s3api.Options.MinRate.
		ReadHeaderTimeout: s.HeaderTimeout, ReadTimeout: min(s.BodyTimeout, s.HeaderTimeout+smallBodyTime),
		WriteTimeout: s.AnswerTimeout, IdleTimeout: s.IdleTimeout, MaxHeaderBytes: s.MaxHeaderBytes,
		ErrorLog: logging.ErrorLog(log),
	}
	defer s3.Close()
	limit := daemon.LimitConns(s3Listener, o.connections, s3, true)
	limitState := s3.ConnState
	s3.ConnState = func(c net.Conn, state http.ConnState) {
		countHeader(c, state)
		limitState(c, state)
	}
	journal := hints.New(o.db.Store, log)
	defer journal.Close()
	ofObjects, err := objects.New(o.db.Client, o.bodies, objects.Options{MD5Bytes: s.md5Bytes(), Hints: journal})
	if err != nil {
		return daemon.Exit(daemon.ExitUsage, err)
	}
	options := s3api.Options{
		Objects:     ofObjects,
		MemoryBytes: memory, MaxCuts: s.MaxCuts, MinRate: s.MinRate,
		BodyTimeout: s.BodyTimeout, AnswerTimeout: s.AnswerTimeout, Busy: limit.Busy,
		Region: s.Region, MaxBodyBytes: s.MaxBodyBytes, MaxRequests: s.MaxRequests, RequestTimeout: s.RequestTimeout,
		Logger: log, LogEvery: s.RequestLog == "all", Metrics: registry,
		SoleWriter: len(s.Cassandra) == 0, HostSuffixes: s.HostSuffix, Guard: guard,
		AllowUnsignedPayload: s.AllowUnsignedPayload, RefuseSignatureV2: s.RefuseSignature2,
	}
	if o.keys != nil {
		options.Keys = o.keys
		go o.keys.Run(ctx, log)
	}
	handler, err := s3api.New(s3api.Over(o.db.Client), options)
	if err != nil {
		return daemon.Exit(daemon.ExitUsage, err)
	}
	s3.Handler = o.traces.Requests(handler)
	var admin *adminserver.Server
	adminURL := ""
	if o.admin != nil {
		admin, err = adminserver.Listen(adminserver.Options{
			Access: o.access, Address: o.admin, Registry: registry, Store: o.db.Store, Buckets: o.db.Client, Log: log,
			Console: console.Handler(),
		})
		if err != nil {
			return fmt.Errorf("--admin: %w", err)
		}
		defer admin.Close()
		adminURL = admin.URL()
	}
	balance := s.balancing(o.db, log, adminURL)
	if s.CleanEvery > 0 {
		cleaner := cleaning.New(s.cleaning(o.db, ofObjects, o.bodies, journal, log, adminURL))
		registry.MustRegister(cleaner)
		balance.Cleaning = cleaner
		if o.db.Presence != nil {
			o.db.Presence.SetCleans()
		}
		clean, stop := context.WithCancel(ctx)
		var ended sync.WaitGroup
		ended.Go(func() { cleaner.Run(clean) })
		defer ended.Wait()
		defer stop()
	}
	balancing := o.db.Balance(ctx, balance)
	registry.MustRegister(engine.Metrics{Rebalancer: balancing, Recorder: o.db.Recorder})
	failed := make(chan error, 2)
	if admin != nil {
		go func() { failed <- admin.Serve(o.traces.Requests(adminapi.New(balancing))) }()
	}
	go func() { failed <- s3.Serve(limit) }()

	fmt.Fprintf(std.out, "S3 on %s://%s\n", scheme, listener.Addr())
	if admin != nil {
		fmt.Fprintf(std.out, "admin on %s\n", adminURL)
	}
	log.Info("serving", append(o.where, "listen", listener.Addr().String())...)

	daemon.Notify(log, daemon.Ready)
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	daemon.Notify(log, daemon.Stopping)
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

// smallBodyTime is the time in which a small body of a request must arrive, counted from the end of the request's
// header. After that the server cuts off the request.
const smallBodyTime = 5 * time.Second
