package s3api_test

import (
	"encoding/xml"
	"fmt"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/internal/test/seed"
)

// tokenPage is a page of a listing with tokens.
type tokenPage struct {
	Contents              []struct{ Key string }
	CommonPrefixes        []struct{ Prefix string }
	Buckets               []string `xml:"Buckets>Bucket>Name"`
	NextContinuationToken string
	ContinuationToken     string // of ListBuckets the next one, too
}

func (p *tokenPage) lines() []string {
	lines := slices.Clone(p.Buckets)
	for _, c := range p.Contents {
		lines = append(lines, c.Key)
	}
	for _, c := range p.CommonPrefixes {
		lines = append(lines, c.Prefix)
	}
	slices.Sort(lines)
	return lines
}

const tokenLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

// alterations are a token without what it ends or begins with, and with one letter altered, left out or added.
func alterations(token string) (all []string) {
	for i := range token {
		all = append(all, token[:i], token[i+1:], token[:i]+token[i+1:])
		for _, c := range tokenLetters + "=+/\n %\x00" {
			all = append(all, token[:i]+string(c)+token[i+1:], token[:i]+string(c)+token[i:])
		}
	}
	for _, c := range tokenLetters {
		all = append(all, token+string(c))
	}
	return append(all, token+"=", token+"A=", token+"==", token+token)
}

// tokenListings are listings whose pages are continued by tokens, with all their lines.
func tokenListings(t *testing.T) (s *server, listings map[string][]string) {
	s, _ = serveObjects(t)
	listings = map[string][]string{
		"/?max-buckets=1": {"kept", "plain", "plain-2"}, "/?max-buckets=1&prefix=p": {"plain", "plain-2"},
	}
	s.want(200, "", "PUT", "/plain", "", "x-evenkeel-bucket-kind", "plain")
	s.want(200, "", "PUT", "/plain-2", "", "x-evenkeel-bucket-kind", "plain")
	s.want(200, "", "PUT", "/kept", "")
	for _, bucket := range []string{"plain", "kept"} {
		var keys []string
		for i := range 7 {
			key := fmt.Sprintf("d%d/k%d", i/3, i)
			keys = append(keys, key)
			s.want(200, "", "PUT", "/"+bucket+"/"+key, "v")
		}
		list := "/" + bucket + "?list-type=2&max-keys="
		listings[list+"2"] = keys
		listings[list+"1&prefix=d1/"] = keys[3:6]
		listings[list+"1&delimiter=/"] = []string{"d0/", "d1/", "d2/"}
		if bucket == "plain" {
			back := slices.Clone(keys)
			slices.Reverse(back)
			listings[list+"3&evenkeel-reverse=true"] = back
			listings[list+"2&evenkeel-from=d0/k1&evenkeel-to=d2/"] = keys[1:6]
		}
	}
	return s, listings
}

// pageOf reads a page; nil: the token was refused.
func (s *server) pageOf(target, token, more string) *tokenPage {
	s.t.Helper()
	if token != "" {
		target += "&continuation-token=" + url.QueryEscape(token)
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, httptest.NewRequest("GET", target+more, nil))
	if w.Code == 400 {
		require.Contains(s.t, w.Body.String(), "<Code>InvalidArgument</Code>")
		return nil
	}
	require.Equal(s.t, 200, w.Code, "%s: %s", target+more, w.Body)
	page := &tokenPage{}
	require.NoError(s.t, xml.Unmarshal(w.Body.Bytes(), page))
	if strings.HasPrefix(target, "/?") {
		page.NextContinuationToken = page.ContinuationToken
	}
	return page
}

// tokensOf lists all pages, and returns the tokens, each with the lines that follow it.
func (s *server) tokensOf(target string, lines []string) (tokens []string, follow [][]string) {
	s.t.Helper()
	rest := slices.Clone(lines)
	for token := ""; ; {
		page := s.pageOf(target, token, "")
		require.NotNil(s.t, page)
		got := page.lines()
		want := slices.Clone(rest[:len(got)])
		slices.Sort(want)
		require.Equal(s.t, want, got, target)
		if rest = rest[len(got):]; page.NextContinuationToken == "" {
			require.Empty(s.t, rest, target)
			return tokens, follow
		}
		token = page.NextContinuationToken
		tokens, follow = append(tokens, token), append(follow, rest)
	}
}

// TestAlteredTokens: a token that was cut or altered is refused, or it continues exactly where the unaltered one does.
func TestAlteredTokens(t *testing.T) {
	race.Skip(t)
	rnd := seed.New(t)
	s, listings := tokenListings(t)
	for target, lines := range listings {
		tokens, follow := s.tokensOf(target, lines)
		i := rnd.IntN(len(tokens))
		want := s.pageOf(target, tokens[i], "").lines()
		refused := 0
		for _, altered := range alterations(tokens[i]) {
			page := s.pageOf(target, altered, "")
			switch {
			case altered == "": // pageOf sends none
			case page == nil:
				refused++
			default:
				require.Equal(t, want, page.lines(), "%s: %q was made of %q", target, altered, tokens[i])
				require.Equal(t, tokens[i], strings.ReplaceAll(altered, "\n", ""), "of all alterations base64 only "+
					"passes over ends of lines")
			}
		}
		require.Greater(t, refused, 64*len(tokens[i]))
		require.Subset(t, follow[i], want)
	}
	for _, target := range []string{"/plain?list-type=2", "/kept?list-type=2", "/kept?list-type=2&max-keys=0"} {
		s.want(400, "InvalidArgument", "GET", target+"&continuation-token=", "")
		s.want(400, "InvalidArgument", "GET", target+"&continuation-token", "")
	}
}

// TestTokensOfOlderPrograms: they had a sum without the place, so they are refused as altered ones are, and the listing
// begins again by its client.
func TestTokensOfOlderPrograms(t *testing.T) {
	s, _ := tokenListings(t)
	// Of the listing of kept with the default page, after d0/k1; and of ListBuckets after kept.
	require.Nil(t, s.pageOf("/kept?list-type=2", "65FP8qEZhf1rZDAvazE", ""))
	require.Nil(t, s.pageOf("/?max-buckets=1", "MTprZXB0", ""))
}

// TestStartAfterBesideAToken: it means nothing there, whatever it is, so no key is lost.
func TestStartAfterBesideAToken(t *testing.T) {
	s, listings := tokenListings(t)
	for target, lines := range listings {
		if strings.HasPrefix(target, "/?") {
			continue
		}
		tokens, _ := s.tokensOf(target, lines)
		for _, token := range tokens {
			want := s.pageOf(target, token, "").lines()
			for _, after := range append([]string{"", "a", "z", "d", "d1", "\xff"}, lines...) {
				got := s.pageOf(target, token, "&encoding-type=url&start-after="+url.QueryEscape(after))
				require.Equal(t, want, got.lines(), "%s after %q", target, after)
			}
		}
	}
}

// TestCutMarkers: ids beside markers are whole, or refused.
func TestCutMarkers(t *testing.T) {
	s, _ := serveObjects(t)
	s.want(200, "", "PUT", "/kept", "")
	s.want(200, "", "PUT", "/kept?versioning", "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>")
	for range 3 {
		s.want(200, "", "PUT", "/kept/k", "v")
		s.want(200, "", "POST", "/kept/k?uploads", "")
	}
	for _, form := range [][3]string{
		{"versions&max-keys=1", "NextVersionIdMarker", "version-id-marker"},
		{"uploads&max-uploads=1", "NextUploadIdMarker", "upload-id-marker"},
	} {
		_, rest, _ := strings.Cut(s.want(200, "", "GET", "/kept?"+form[0], "").body, "<"+form[1]+">")
		id, _, _ := strings.Cut(rest, "<")
		require.NotEmpty(t, id)
		next := "/kept?" + form[0] + "&key-marker=k&" + form[2] + "="
		s.want(200, "", "GET", next+id, "")
		for i := 1; i < len(id); i++ {
			s.want(400, "InvalidArgument", "GET", next+id[:i], "")
			s.want(400, "InvalidArgument", "GET", next+id[i:], "")
		}
	}
}
