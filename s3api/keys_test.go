package s3api_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/s3api"
)

func TestParseKeys(t *testing.T) {
	set, err := s3api.ParseKeys([]byte(`
keys:
  - {id: ADMIN, secret: 0123456789abcdef, access: read-write}
  - id: REPORTS
    secret: "*quoted secret of some length"
    access: read-only
    only: [photos, logs/2024/, logs/ü/]
`))
	require.NoError(t, err)
	require.Equal(t, s3api.KeySet{
		"ADMIN": {ID: "ADMIN", Secret: "0123456789abcdef", Write: true},
		"REPORTS": {ID: "REPORTS", Secret: "*quoted secret of some length",
			Only: []s3api.Area{{Bucket: "photos"}, {Bucket: "logs", Prefix: "2024/"}, {Bucket: "logs", Prefix: "ü/"}}},
	}, set)
	require.Nil(t, set.Key("nobody"))
}

// The message tells the place and never a secret; everything wrong is told.
func TestKeysThatAreRefused(t *testing.T) {
	const good = "keys:\n- {id: A, secret: verysecretverysecret, access: read-only"
	for text, want := range map[string][]string{
		"":                          {"there is no key"},
		"keys: []":                  {"there is no key"},
		"keys: [":                   {"line"},
		"keys: [{<<, {a}, b}]":      {"not YAML"}, // the parser panics
		"a: 1":                      {"unknown field a"},
		good:                        {"line"},
		good + "}":                  nil,
		good + "}x":                 {"line"},
		good + "}\n---\nkeys: []\n": {"more than one"},
		good + ", only: []}":        {"key 1", "empty list"},
		good + ", only: [Not_A_Bucket/x, /y, \"\"]}":                          {`"Not_A_Bucket/x"`, `"/y"`, `""`},
		good + ", only: verysecretverysecret}":                                {"line 2: not the form"},
		good + ", prefix: x}":                                                 {"line 2: unknown field prefix"},
		good + "}\n- {id: A, secret: verysecretverysecret, access: all}":      {"key 2: there is another", "key 2: access is"},
		"keys:\n- {id: A, secret: verysecret, access: read-only}":             {"key 1: secret has 16"},
		"keys:\n- {id: \"A/B\", secret: verysecretverysecret}":                {"key 1: id is", "key 1: access is"},
		"keys:\n- {id: A, secret: *verysecretverysecret, access: read-only}":  {"not YAML"},
		"keys:\n- {id: A, secret: [verysecretverysecret], access: read-only}": {"line 2: not the form"},
	} {
		_, err := s3api.ParseKeys([]byte(text))
		if want == nil {
			require.NoError(t, err)
			continue
		}
		require.Error(t, err, text)
		for _, w := range want {
			require.ErrorContains(t, err, w, text)
		}
		require.NotContains(t, err.Error(), "verysecret", text)
	}
}
