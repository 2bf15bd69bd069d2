package s3tour

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/internal/test/s3test"
)

// ask is one request, and what is compared of its answer.
type ask struct {
	// what is the method and the path; {name} stands for what an earlier answer had.
	what   string
	header string // "Name: value", one per line
	body   string
	// as names what the answer has of its own: the version in the header, or the upload in the document.
	as string
	// but says how the other server differs from what AWS documents: its answer is another one, and is not compared.
	but string
}

// a shop is one server under comparison, with the names that it has given.
type shop struct {
	url, region, keyID, secret string
	names                      map[string]string
}

func (s *shop) fill(text string) string {
	for name, is := range s.names {
		text = strings.ReplaceAll(text, "{"+name+"}", is)
	}
	return text
}

// told replaces what the server has named by the names that it has in the script.
func (s *shop) told(text string) string {
	for name, is := range s.names {
		if text == is {
			return "{" + name + "}"
		}
	}
	return text
}

// do sends a request, signed, and returns what is compared of the answer.
func (s *shop) do(ctx context.Context, a *ask) (answer []string, err error) {
	method, path, _ := strings.Cut(s.fill(a.what), " ")
	body := []byte(s.fill(a.body))
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(s.fill(a.header)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		req.Header.Set(name, value)
	}
	if strings.HasSuffix(path, "?delete") {
		sum := md5.Sum(body)
		req.Header.Set("Content-MD5", base64.StdEncoding.EncodeToString(sum[:]))
	}
	sum := sha256.Sum256(body)
	hash := hex.EncodeToString(sum[:])
	req.Header.Set("X-Amz-Content-Sha256", hash)
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }) // S3 escapes it once
	keys := aws.Credentials{AccessKeyID: s.keyID, SecretAccessKey: s.secret}
	if err := signer.SignHTTP(ctx, keys, req, hash, "s3", s.region, time.Now()); err != nil {
		return nil, err
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	lines, err := s.document(a, resp, got)
	if err != nil {
		return nil, err
	}
	answer = append(answer, fmt.Sprint("status ", resp.StatusCode))
	for name, values := range resp.Header {
		name = strings.ToLower(name)
		if slices.Contains(compared, name) || strings.HasPrefix(name, "x-amz-meta-") {
			answer = append(answer, name+": "+s.told(values[0]))
		}
	}
	slices.Sort(answer[1:])
	return append(answer, lines...), nil
}

// compared are the headers that S3 defines.
var compared = []string{
	"etag", "content-range", "content-encoding", "content-disposition", "cache-control", "content-language",
	"x-amz-version-id", "x-amz-delete-marker", "x-amz-tagging-count", "x-amz-mp-parts-count",
	"x-amz-copy-source-version-id",
}

// ignored are elements of documents that servers have of their own. listd computes no checksums that it was not
// asked for.
var ignored = []string{
	"LastModified", "Initiated", "Owner", "Initiator", "RequestId", "HostId", "Resource", "Message", "BucketName",
	"StorageClass", "Location", "LocationConstraint", "ChecksumType", "ChecksumAlgorithm", "ChecksumCRC64NVME",
	"CreationDate",
}

// document returns what an answer says: its elements, or its bytes. It learns the names in it.
func (s *shop) document(a *ask, resp *http.Response, got []byte) (lines []string, err error) {
	if version := resp.Header.Get("X-Amz-Version-Id"); a.as != "" && version != "" && version != "null" {
		s.names[a.as] = version
	}
	if !strings.Contains(resp.Header.Get("Content-Type"), "xml") || len(got) == 0 {
		if resp.Request.Method == http.MethodGet && len(got) > 0 {
			lines = append(lines, fmt.Sprintf("%d bytes, SHA-256 %x", len(got), sha256.Sum256(got)))
		}
		return lines, nil
	}
	var root node
	if err := xml.Unmarshal(got, &root); err != nil {
		return nil, fmt.Errorf("%w in %s", err, got)
	}
	return s.elements(&root, a.as), nil
}

// node is an element of a document.
type node struct {
	XMLName xml.Name
	Text    string `xml:",chardata"`
	Of      []node `xml:",any"`
}

// elements returns what an element says, a line for each one in it. Those of one name are in their order; what is
// empty may as well be left out.
func (s *shop) elements(n *node, as string) (lines []string) {
	name := n.XMLName.Local
	switch {
	case slices.Contains(ignored, name):
		return nil
	case name == "UploadId" && as != "":
		s.names[as] = n.Text
	case name == "ETag":
		n.Text = strings.Trim(n.Text, `"`)
	}
	if len(n.Of) == 0 {
		if n.Text == "" {
			return nil
		}
		return []string{name + ": " + s.told(n.Text)}
	}
	slices.SortStableFunc(n.Of, func(a, b node) int { return strings.Compare(a.XMLName.Local, b.XMLName.Local) })
	for i := range n.Of {
		if name == "Error" && n.Of[i].XMLName.Local != "Code" && n.Of[i].XMLName.Local != "Key" {
			continue
		}
		for _, line := range s.elements(&n.Of[i], as) {
			lines = append(lines, "  "+line)
		}
	}
	return append([]string{name}, lines...)
}

// TestAnswersAreThoseOfAnotherServer sends the same requests to listd and to versitygw, an S3 server that keeps objects
// as files: where S3 defines an answer both give the same.
func TestAnswersAreThoseOfAnotherServer(t *testing.T) {
	t.Parallel()
	p := harness.Build(t)
	ours := p.Serve("--data", filepath.Join(p.Dir, "data"), "--keys-file", allKeysFile(t, p.Dir))
	theirs := s3test.Start(t)
	shops := []*shop{
		{url: ours.S3, region: "us-east-1", keyID: keyID, secret: secret, names: map[string]string{}},
		{
			url: theirs.URL, region: s3test.Region, keyID: s3test.AccessKey, secret: s3test.SecretKey,
			names: map[string]string{},
		},
	}
	same, other := 0, 0
	for i := range script {
		a := &script[i]
		var answers [2][]string
		for i, s := range shops {
			var err error
			answers[i], err = s.do(t.Context(), a)
			require.NoError(t, err, a.what)
		}
		if a.but != "" {
			other++
			if slices.Equal(answers[0], answers[1]) {
				t.Errorf("%s: both answer the same, though %s", a.what, a.but)
			}
			continue
		}
		same++
		if !slices.Equal(answers[0], answers[1]) {
			t.Errorf("%d: %s\nlistd:\n\t%s\nversitygw:\n\t%s", i, a.what,
				strings.Join(answers[0], "\n\t"), strings.Join(answers[1], "\n\t"))
		}
	}
	t.Logf("%d answers are the same; %d differ, as is known", same, other)
}
