package rediscounter

import (
	"net/url"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/evenkeel/evenkeel/store"
)

// ParseURL reads options from redis://user:password@host:port/db, or rediss:// for TLS. Parameters
// may follow: prefix=NAME; cluster=true for a Redis Cluster, and sentinel=NAME for the master NAME
// that sentinels watch, each with one or more addresses: redis://a:26379,b:26379/0?sentinel=NAME. It
// fails with InvalidArgument.
func ParseURL(s string) (Options, error) {
	first, addrs := oneHost(s)
	u, err := url.Parse(first)
	if err != nil {
		// Its message would repeat the password.
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
		// Its message may repeat a part of a password that is not escaped.
		return Options{}, store.Errorf(store.InvalidArgument,
			"that is no URL of a Redis: give redis://host:6379/0, with %%2F for a slash in a password")
	}
	o := Options{
		Addr: strings.Join(append([]string{one.Addr}, addrs...), ","), Cluster: cluster == "true", Sentinel: sentinel,
		Username: one.Username, Password: one.Password, DB: one.DB, TLS: one.TLSConfig, Prefix: prefix,
	}
	return o, o.check()
}

// oneHost returns a URL with the first of its addresses only, and the other ones.
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
