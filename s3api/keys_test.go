package s3api_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/s3api"
)

func TestParseKeys(t *testing.T) {
	set, err := s3api.ParseKeys([]byte(`
keys:
  - {id: ADMIN, secret: 0123456789abcdef, access: read-write, everything: true, key-bytes: any}
  - id: REPORTS
    secret: "*quoted secret of some length"
    access: read-only
    only: [photos, logs/2024/, logs/ü/]
complete: true
`))
	require.NoError(t, err)
	require.Equal(t, s3api.KeySet{
		"ADMIN": {ID: "ADMIN", Secret: "0123456789abcdef", Write: true, AnyBytes: true, Everything: true},
		"REPORTS": {ID: "REPORTS", Secret: "*quoted secret of some length",
			Only: []string{"photos", "logs/2024/", "logs/ü/"}},
	}, set)
	require.Nil(t, set.Key("nobody"))
}

// A file that is cut off, wherever it is, is refused.
func TestKeysThatAreCutOff(t *testing.T) {
	for _, whole := range []string{`# made by hand
keys:
  - id: REPORTS
    secret: a secret of some length
    access: read-only
    only:
      - photos
      - logs/2024/
  - id: ADMIN
    secret: another secret of some length
    access: read-write
    everything: true
complete: true # all of it
`,
		"{keys: [{id: REPORTS, secret: a secret of some length, access: read-only, only: [a-b/c/d]}], complete: true}\n",
		"---\nkeys:\n- {only: [a-b/c/d], id: REPORTS, secret: a secret of some length, access: read-only}\n\n" +
			"complete: true\n...\n",
	} {
		want, err := s3api.ParseKeys([]byte(whole))
		require.NoError(t, err)
		end := strings.LastIndex(whole, "true") + len("true")
		for at := range len(whole) {
			set, err := s3api.ParseKeys([]byte(whole[:at]))
			if at < end {
				require.Error(t, err, "cut off behind %q", whole[:at])
			} else if err == nil {
				require.Equal(t, want, set)
			}
		}
	}
}

// The message tells the place and never a secret; everything wrong is told.
func TestKeysThatAreRefused(t *testing.T) {
	_, err := s3api.ParseKeys([]byte("complete: true"))
	require.EqualError(t, err, "there is no key in it")
	const scopeless = "keys:\n- {id: A, secret: verysecretverysecret, access: read-only"
	const good, end = scopeless + ", everything: true", "}\ncomplete: true\n"
	for text, want := range map[string][]string{
		"":                                      {"there is no key"},
		"keys: []":                              {"there is no key"},
		"{}":                                    {"there is no key", "add that line"},
		"keys: [":                               {"line"},
		"keys: [{<<, {a}, b}]":                  {"not YAML"}, // the parser panics
		"a: 1":                                  {"unknown field a"},
		good:                                    {"line"},
		good + end:                              nil,
		good + end + "x":                        {"line"},
		good + end + "---\nkeys: []\n":          {"more than one"},
		good + end + "keys: []\n":               {"line"},
		good + "}\n":                            {"add that line"},
		good + "}\ncomplete: false":             {"add that line"},
		good + "}\ncomplete:":                   {"add that line"},
		good + "}\ncomplete: no":                {"add that line"},
		good + ", complete: true}\n":            {"unknown field complete"},
		"complete: true\n" + good + "}\n":       {"add that line"},
		scopeless + "}\n":                       {"key 1", "everything: true, or only: [BUCKET", "add that line"},
		scopeless + end:                         {"key 1", "add everything: true, or only: [BUCKET"},
		scopeless + ", only: []" + end:          {"key 1", "only: is empty"},
		scopeless + ", only: " + end:            {"key 1", "only: is empty"},
		scopeless + ", only: ~" + end:           {"key 1", "only: is empty"},
		scopeless + ", everything: false" + end: {"key 1", "everything: is true"},
		scopeless + ", everything: " + end:      {"key 1", "everything: is true"},
		scopeless + ", everything: verysecret" + end:              {"line 2: not the form"},
		scopeless + ", everything: false, only: [abc]" + end:      {"key 1", "it has only: and everything:"},
		good + ", only: [abc]" + end:                              {"key 1", "it has only: and everything:"},
		good + ", only: []" + end:                                 {"key 1", "it has only: and everything:"},
		good + ", only: " + end:                                   {"key 1", "it has only: and everything:"},
		scopeless + ", only: [Not_A_Bucket/x, /y, \"\", ~]" + end: {`"Not_A_Bucket/x"`, `"/y"`, `""`},
		scopeless + ", only: verysecretverysecret" + end:          {"line 2: not the form"},
		scopeless + ", only: [{<<, {a}, b}]" + end:                {"line 2: not the form"},
		good + ", key-bytes: all" + end:                           {"key 1: key-bytes is any"},
		good + ", signatures: v2" + end:                           {"key 1: signatures is v4"},
		good + ", signatures: v4" + end:                           nil,
		good + ", prefix: x" + end:                                {"line 2: unknown field prefix"},
		good + "}\n- {id: A, secret: verysecretverysecret, access: all" + end: {
			"key 2: there is another", "key 2: access is",
		},
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
