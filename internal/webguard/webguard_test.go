package webguard_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/webguard"
)

func TestHosts(t *testing.T) {
	plain, err := webguard.New(nil, nil)
	require.NoError(t, err)
	named, err := webguard.New([]string{"S3.internal", "10.0.0.5", "fd00::5"}, []string{"s3.example.test"})
	require.NoError(t, err)
	open, err := webguard.New([]string{"*"}, nil)
	require.NoError(t, err)
	for host, taken := range map[string][2]bool{ // by plain, by named
		"localhost": {true, true}, "LOCALHOST:9000": {true, true}, "localhost.": {true, true},
		"127.0.0.1:1": {true, true},
		"127.255.3.4": {true, true}, "[::1]:9000": {true, true}, "[::1]": {true, true},
		"[::ffff:127.0.0.1]:80": {true, true},
		"s3.internal":           {false, true}, "s3.INTERNAL.:9000": {false, true}, "10.0.0.5:9000": {false, true},
		"[fd00::5]:9000":           {false, true},
		"abc.s3.example.test:9000": {false, true}, "s3.example.test": {false, true},
		"": {}, ":9000": {}, "evil.test": {}, "localhost.evil.test": {}, "127.0.0.1.evil.test": {},
		"evils3.example.test": {},
		"128.0.0.1":           {}, "0.0.0.0:9000": {}, "[::]:9000": {}, "127.1": {}, "0x7f000001": {}, "2130706433": {},
		"localhost@evil.test":      {},
		"localhost:9000.evil.test": {}, "x.s3.internal": {}, "[::1].evil.test": {}, "[::1": {}, "a:b:c": {},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = host
		require.Equal(t, taken, [2]bool{plain.CheckHost(r) == nil, named.CheckHost(r) == nil}, host)
		require.NoError(t, open.CheckHost(r), host)
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Host = strings.Repeat("\x01", 100_000)
	require.Less(t, len(plain.CheckHost(r).Error()), 2000)
	for _, bad := range []string{"", ".", "http://a", "a/b", "a:9000", "*.example.test", "u@h"} {
		_, err := webguard.New([]string{bad}, nil)
		require.Error(t, err, bad)
	}
}

func TestOrigins(t *testing.T) {
	g, err := webguard.New(nil, nil)
	require.NoError(t, err)
	for _, c := range []struct {
		headers []string
		refused bool
	}{
		{nil, false},
		{[]string{"Sec-Fetch-Site", "none"}, false},
		{[]string{"Sec-Fetch-Site", "same-origin", "Origin", "http://127.0.0.1:9001"}, false},
		{[]string{"Origin", "http://127.0.0.1:9001"}, false},
		{[]string{"Sec-Fetch-Site", "cross-site"}, true},
		{[]string{"Sec-Fetch-Site", "same-site"}, true},
		{[]string{"Origin", "http://evil.test"}, true},
		{[]string{"Origin", "http://127.0.0.1:3000"}, true},
		{[]string{"Origin", "null"}, true},
	} {
		for method, changes := range map[string]bool{"GET": false, "HEAD": false, "POST": true, "PUT": true,
			"DELETE": true} {
			r := httptest.NewRequest(method, "http://127.0.0.1:9001/", nil)
			for i := 0; i < len(c.headers); i += 2 {
				r.Header.Set(c.headers[i], c.headers[i+1])
			}
			require.Equal(t, c.refused && changes, g.CheckOrigin(r) != nil, "%s %v", method, c.headers)
			require.Equal(t, c.refused, g.CheckAnyOrigin(r) != nil, "%s %v", method, c.headers)
		}
	}
}

func TestClient(t *testing.T) {
	for remote, want := range map[string]string{
		"10.1.2.3:80": "10.1.2.3/32", "[::ffff:10.1.2.3]:80": "10.1.2.3/32",
		"[2001:db8:1:2:3::4]:80": "2001:db8:1:2::/64",
		"[fe80::1%eth0]:80":      "fe80::/64", "pipe": "invalid Prefix", "": "invalid Prefix",
	} {
		require.Equal(t, want, webguard.Client(remote).String(), remote)
	}
}
