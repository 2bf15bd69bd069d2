package s3tour

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// FilesVariable is the name of the environment variable that sets the number of files of a tour. GOROOT/src has some
// 7,700 files that are small enough.
const FilesVariable = "EVENKEEL_TREE_FILES"

const (
	keyID  = "TOUR"
	secret = "the secret of the tour"
)

// KeysFile writes a file of access keys for a server, and returns its path. The access key may use the buckets of all
// clients of this package: each client uses the bucket that has its name.
func KeysFile(t testing.TB, dir string) string {
	t.Helper()
	file := filepath.Join(dir, "keys.yaml")
	text := "keys:\n- {id: " + keyID + ", secret: " + secret + ", access: read-write, " +
		"only: [aws-sdk-go, minio-go, awscli, boto3, rclone, s3cmd]}\ncomplete: true\n"
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// At returns the place of a server that has the access keys of KeysFile.
func At(url string) Place { return Place{URL: url, KeyID: keyID, Secret: secret} }

// Clients returns all clients for the server p, by the names of their buckets.
func Clients(t testing.TB, p Place) map[string]Client {
	t.Helper()
	minio, err := Minio(p)
	require.NoError(t, err)
	boto, err := Boto(p)
	require.NoError(t, err)
	return map[string]Client{"aws-sdk-go": AWSSDK(p), "minio-go": minio, "awscli": AWSCLI(p), "boto3": boto,
		"rclone": Rclone(p), "s3cmd": S3cmd(p)}
}
