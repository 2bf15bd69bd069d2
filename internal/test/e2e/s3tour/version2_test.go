package s3tour

import (
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/s3api"
)

// TestVersion2OfMinioGo: a client that signs all by version 2.
func TestVersion2OfMinioGo(t *testing.T) {
	forms(t, func(t *testing.T, s *server, client *http.Client) {
		ctx := t.Context()
		u, err := url.Parse(s.url)
		require.NoError(t, err)
		c, err := minio.New(u.Host, &minio.Options{
			Creds: credentials.NewStaticV2("ADMIN", "the secret of the admin", ""), Secure: u.Scheme == "https",
			Transport: client.Transport, Region: "us-east-1", MaxRetries: 1,
		})
		require.NoError(t, err)
		require.NoError(t, c.MakeBucket(ctx, "photos", minio.MakeBucketOptions{}))
		for _, key := range hardKeys() {
			if strings.HasPrefix(key, "/") {
				continue // minio-go drops the slash
			}
			_, err := c.PutObject(ctx, "photos", key, strings.NewReader(key), int64(len(key)), minio.PutObjectOptions{
				ContentType: "text/x", UserMetadata: map[string]string{"A": "b c"},
			})
			require.NoError(t, err, "%q", key)
			o, err := c.GetObject(ctx, "photos", key, minio.GetObjectOptions{})
			require.NoError(t, err)
			data, err := io.ReadAll(o)
			require.NoError(t, err, "%q", key)
			require.Equal(t, key, string(data))
			_, err = c.CopyObject(ctx, minio.CopyDestOptions{Bucket: "photos", Object: "copy"},
				minio.CopySrcOptions{Bucket: "photos", Object: key})
			require.NoError(t, err, "%q", key)

			put, err := c.PresignedPutObject(ctx, "photos", key, time.Minute)
			require.NoError(t, err)
			require.Contains(t, put.RawQuery, "AWSAccessKeyId=")
			status, answer := call(t, client, http.MethodPut, put.String(), "presigned "+key)
			require.Equal(t, 200, status, answer)
			get, err := c.PresignedGetObject(ctx, "photos", key, time.Minute,
				url.Values{"response-content-type": {"text/other; a=b"}})
			require.NoError(t, err)
			status, answer = call(t, client, http.MethodGet, get.String(), "")
			require.Equal(t, 200, status, answer)
			require.Equal(t, "presigned "+key, answer)
			for _, other := range []string{
				strings.Replace(get.String(), "text", "html", 1), get.String() + "&versionId=null", put.String() + "x",
			} {
				status, answer = call(t, client, http.MethodGet, other, "")
				require.Equal(t, 403, status, answer)
			}
		}
		found := 0
		for o := range c.ListObjects(ctx, "photos", minio.ListObjectsOptions{Recursive: true}) {
			require.NoError(t, o.Err)
			found++
		}
		require.Equal(t, len(hardKeys()), found) // without the one with a slash, with the copy
		all := c.ListObjects(ctx, "photos", minio.ListObjectsOptions{Recursive: true})
		for e := range c.RemoveObjects(ctx, "photos", all, minio.RemoveObjectsOptions{}) {
			require.NoError(t, e.Err)
		}
		require.NoError(t, c.RemoveBucket(ctx, "photos"))
	})
}

func call(t *testing.T, client *http.Client, method, target, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequest(method, target, strings.NewReader(body))
	require.NoError(t, err)
	resp, err := client.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(data)
}

// presigning is what programs with boto3 do that know nothing of versions of signatures: the client is made without a
// word about them, and so presigns by version 2.
const presigning = `
import sys, urllib.request, boto3
from botocore.config import Config
new = lambda **more: boto3.client("s3", endpoint_url=sys.argv[1], region_name="us-east-1",
    aws_access_key_id="ADMIN", aws_secret_access_key="the secret of the admin", **more)
c = new()
def do(method, body=None, headers={}, client=c, **params):
    url = client.generate_presigned_url(method, Params=params, ExpiresIn=600)
    assert "AWSAccessKeyId=" in url, url
    verb = {"get": "GET", "put": "PUT", "del": "DELETE", "hea": "HEAD", "lis": "GET"}[method[:3]]
    with urllib.request.urlopen(urllib.request.Request(url, data=body, headers=headers, method=verb)) as answer:
        return answer.read(), answer.headers
c.create_bucket(Bucket="photos")
old = new(config=Config(signature_version="s3"))
for key in sys.argv[2:]:
    at = {"Bucket": "photos", "Key": key}
    typed = {"Content-Type": "text/x"}
    do("put_object", b"one", typed, ContentType="text/x", Metadata={"a": "b c"}, ACL="private", **at)
    body, headers = do("get_object", ResponseContentDisposition='attachment; filename="u b+.txt"', **at)
    assert body == b"one" and headers["Content-Type"] == "text/x" and headers["x-amz-meta-a"] == "b c", headers.items()
    assert headers["Content-Disposition"] == 'attachment; filename="u b+.txt"', headers.items()
    do("head_object", **at)
    do("delete_object", **at)
    old.put_object(Body=b"two", ContentType="text/x", **at)
    assert old.get_object(**at)["Body"].read() == b"two"
    old.copy_object(CopySource=at, Bucket="photos", Key="copy")
    old.delete_objects(Bucket="photos", Delete={"Objects": [{"Key": "copy"}]})
assert len(old.list_objects_v2(Bucket="photos")["Contents"]) == len(sys.argv) - 2
print("all of it")
`

// TestVersion2OfBoto3AndAWSCLI: their URLs are good as they make them by default.
func TestVersion2OfBoto3AndAWSCLI(t *testing.T) {
	s := serveKeys(t, s3api.Options{})
	env := append(os.Environ(), "AWS_EC2_METADATA_DISABLED=true", "AWS_CONFIG_FILE=/dev/null", "AWS_CA_BUNDLE=",
		"AWS_SHARED_CREDENTIALS_FILE=/dev/null", "AWS_ACCESS_KEY_ID=ADMIN", "NO_PROXY=127.0.0.1",
		"AWS_SECRET_ACCESS_KEY=the secret of the admin", "AWS_DEFAULT_REGION=us-east-1")
	run := func(name string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return strings.TrimSpace(string(out))
	}
	python := ""
	for _, name := range []string{"/usr/bin/python3", "python3"} {
		if python == "" && exec.Command(name, "-c", "import boto3").Run() == nil {
			python = name
		}
	}
	require.NotEmpty(t, python, "there is no Python with boto3: scripts/install-tools installs it")
	script := filepath.Join(t.TempDir(), "presigning.py")
	require.NoError(t, os.WriteFile(script, []byte(presigning), 0o600))
	keys := []string{"plain", "a b", "a+b", "a%2Fb", "ü/世", "a//b", "../a", "~-_.!*'()", "a&b=c?d#e",
		"$@:;,[]{}|\\^`\"<>", "x?acl"}
	require.Equal(t, "all of it", run(python, append([]string{script, s.url}, keys...)...))

	presigned := run("aws", "--endpoint-url", s.url, "s3", "presign", "s3://photos/plain", "--expires-in", "60")
	require.Contains(t, presigned, "AWSAccessKeyId=")
	status, body := call(t, http.DefaultClient, http.MethodGet, presigned, "")
	require.Equal(t, 200, status, body)
	require.Equal(t, "two", body)
	status, _ = call(t, http.DefaultClient, http.MethodHead, presigned, "")
	require.Equal(t, 403, status)
}
