package rediscounter

import (
	"net/url"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/evenkeel/evenkeel/store"
)

// ParseURL returns the options for a Redis that a URL describes: redis://user:password@host:port/db, or rediss:// for
// TLS. Parameters may follow. prefix=NAME sets Options.Prefix. cluster=true stands for a Redis Cluster. sentinel=NAME
// names the master that sentinels watch.
//
// With cluster or sentinel the URL may have several addresses, separated by commas:
// redis://a:26379,b:26379/0?sentinel=NAME. ParseURL fails with InvalidArgument if the URL is wrong; the error does not
// repeat the password.
func ParseURL(s string) (Options, error) {
	first, addrs := oneHost(s)
	u, err := url.Parse(first)
	if err != nil {
		// The message of err would repeat the password.
		return Options{}, store.Errorf(store.InvalidArgument, "that is no URL: give redis://host:6379/0")
	}
	q := u.Query()
	prefix, cluster, sentinel := q.Get("prefix"), q.Get("cluster"), q.Get("sentinel")
	if cluster != "" && cluster != "true" && cluster != "false" {
		return Options{}, store.Errorf(store.InvalidArgument, "cluster=%s: give cluster=true, or nothing", cluster)
	}
	for _, name := range []string{"prefix", "cluster", "sentinel"} {
		q.Del(name)
	}
	u.RawQuery = q.Encode()
	one, err := redis.ParseURL(u.String())
	if err != nil {
		// The message of err may repeat a part of a password that is not escaped.
		return Options{}, store.Errorf(store.InvalidArgument,
			"that is no URL of a Redis: give redis://host:6379/0, with %%2F for a slash in a password")
	}
	o := Options{
		Addr: strings.Join(append([]string{one.Addr}, addrs...), ","), Cluster: cluster == "true", Sentinel: sentinel,
		Username: one.Username, Password: one.Password, DB: one.DB, TLS: one.TLSConfig, Prefix: prefix,
	}
	return o, o.check()
}

// oneHost separates the addresses of a Redis URL with several of them. It returns the URL with only its first address,
// and the list of the other addresses, which is nil if the URL has only one address.
func oneHost(s string) (first string, others []string) {
	scheme, rest, _ := strings.Cut(s, "://")
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	authority := rest[:end]
	hosts := strings.LastIndex(authority, "@") + 1
	all := strings.Split(authority[hosts:], ",")
	if len(all) == 1 {
		return s, nil
	}
	return scheme + "://" + authority[:hosts] + all[0] + rest[end:], all[1:]
}
