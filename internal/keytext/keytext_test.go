package keytext_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/internal/keytext"
)

func TestText(t *testing.T) {
	for _, c := range []struct{ key, text string }{
		{"", ""},
		{"plain/key 1", "plain/key 1"},
		{`a\b`, `a\\b`},
		{"tab\tline\n\x00\x7f", `tab\x09line\x0a\x00\x7f`},
		{"Grüße 世界", "Grüße 世界"},
		{"\xff\xfeü", `\xff\xfeü`},
		{"\u2028", `\xe2\x80\xa8`},
		{"\ufffd", "\ufffd"},
		{`\x41`, `\\x41`},
	} {
		require.Equal(t, c.text, keytext.Format([]byte(c.key)))
		back, err := keytext.Parse(c.text)
		require.NoError(t, err)
		require.Equal(t, c.key, string(back))
	}
	upper, err := keytext.Parse(`\xFF\xaB`)
	require.NoError(t, err)
	require.Equal(t, "\xff\xab", string(upper))
}

func TestTextRefusesStrayBackslashes(t *testing.T) {
	for _, text := range []string{`\`, `a\n`, `\x`, `\x4`, `\xg0`, `\x4g`, `\X41`} {
		_, err := keytext.Parse(text)
		require.Error(t, err, text)
	}
}

func TestRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := keytext.Key(rapid.OneOf(
			rapid.SliceOf(rapid.Byte()),
			rapid.Map(rapid.String(), func(s string) []byte { return []byte(s) }),
		).Draw(t, "key"))
		text := key.String()
		if strings.ContainsAny(text, "\n\r\t\x00\x1b") {
			t.Fatalf("%q is not one line of text", text)
		}
		back, err := keytext.Parse(text)
		if err != nil || string(back) != string(key) {
			t.Fatalf("%q came back from text as %q, %v", key, back, err)
		}
		j, err := json.Marshal(key)
		if err != nil {
			t.Fatal(err)
		}
		var fromJSON keytext.Key
		if err := json.Unmarshal(j, &fromJSON); err != nil || string(fromJSON) != string(key) {
			t.Fatalf("%q came back from %s as %q, %v", key, j, fromJSON, err)
		}
	})
}

func TestJSON(t *testing.T) {
	j, err := json.Marshal(keytext.Key("ü"))
	require.NoError(t, err)
	require.Equal(t, `"ü"`, string(j))
	j, err = json.Marshal(keytext.Key("\xff"))
	require.NoError(t, err)
	require.Equal(t, `{"b64":"/w=="}`, string(j))
	for _, bad := range []string{`1`, `{}`, `null1`, `{"b64":1}`, `{"b64":"*"}`, `[]`} {
		var k keytext.Key
		require.Error(t, json.Unmarshal([]byte(bad), &k), bad)
	}
}
