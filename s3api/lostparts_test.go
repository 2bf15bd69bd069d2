package s3api_test

import (
	"encoding/xml"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/s3api"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// TestUploadsWhoseBodiesGo: a completion whose bodies are lost is refused as one whose parts are not there; and a bucket
// with an upload is deleted for good even if its bodies are away: who deletes it again deletes these.
func TestUploadsWhoseBodiesGo(t *testing.T) {
	st := memstore.New()
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	c, err := listing.New(st, listing.Options{})
	require.NoError(t, err)
	b := &brokenBlobs{m: map[string][]byte{}}
	o, err := objects.New(c, b, objects.Options{})
	require.NoError(t, err)
	s := serve(t, s3api.Over(c), s3api.Options{SoleWriter: true, Objects: o})
	s.want(200, "", "PUT", "/abc", "")
	var begun struct{ UploadId string }
	require.NoError(t, xml.Unmarshal([]byte(s.want(200, "", "POST", "/abc/k?uploads", "").body), &begun))
	up := "/abc/k?uploadId=" + begun.UploadId
	etag := s.want(200, "", "PUT", up+"&partNumber=1", strings.Repeat("x", 10_000)).header.Get("ETag")
	require.Equal(t, 1, len(b.m))
	for name, body := range b.m {
		delete(b.m, name)
		s.want(400, "InvalidPart", "POST", up, completion([]string{etag}))
		s.want(404, "NoSuchKey", "GET", "/abc/k", "")
		b.m[name] = body
	}
	b.calls, b.fails = 0, 1
	s.want(503, "ServiceUnavailable", "DELETE", "/abc", "")
	require.Equal(t, 1, len(b.m))
	s.want(404, "NoSuchBucket", "POST", up, completion([]string{etag}))
	s.want(404, "NoSuchBucket", "DELETE", "/abc", "")
	require.Zero(t, len(b.m))
	s.want(404, "NoSuchBucket", "DELETE", "/abc", "")
	s.want(200, "", "PUT", "/abc", "")
	s.want(204, "", "DELETE", "/abc", "")
}
