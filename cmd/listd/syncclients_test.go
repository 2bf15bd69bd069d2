package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The directory tree that clients sync: real files of the Go distribution that
// are small enough to be kept.
const (
	syncedBytes = 4096
	syncedFiles = 150
)

// smallTree copies files of GOROOT/src and returns them by their paths.
func smallTree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	require.NoError(t, err)
	root := filepath.Join(strings.TrimSpace(string(goroot)), "src", "internal")
	require.NoError(t, filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || len(files) >= syncedFiles {
			return err
		}
		data, err := os.ReadFile(path)
		name, rerr := filepath.Rel(root, path)
		if err != nil || rerr != nil || len(data) == 0 || len(data) > syncedBytes {
			return err
		}
		files[name] = string(data)
		return nil
	}))
	files["a dir/ü + %2F & more.txt"] = "hello"
	require.Greater(t, len(files), 100)
	for name, data := range files {
		at := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o700))
		require.NoError(t, os.WriteFile(at, []byte(data), 0o600))
	}
	return files
}

// readTree returns all files under dir.
func readTree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		name, rerr := filepath.Rel(dir, path)
		require.NoError(t, rerr)
		files[name] = string(data)
		return err
	}))
	return files
}

// syncClient is a client's way to do what people do with a directory.
type syncClient struct {
	name string
	env  []string
	// Commands; BUCKET, UP, DOWN and SERVER are replaced.
	create, up, list, folders, down, remove string
	// folder is how a listing by delimiter shows a folder.
	folder string
}

const syncKeys = "keys:\n- {id: SYNC, secret: the secret of the sync, access: read-write, only: [awscli, rclone, s3cmd]}\n"

// TestClientsSyncDirectories: put a tree, list it all and by folder, put it again
// with one file less and one changed, get it back, delete all of it. Signatures
// are verified.
func TestClientsSyncDirectories(t *testing.T) {
	keys := filepath.Join(t.TempDir(), "keys.yaml")
	require.NoError(t, os.WriteFile(keys, []byte(syncKeys), 0o600))
	p := start(t, t.TempDir(), "--keys-file", keys)
	host := strings.TrimPrefix(p.s3, "http://")
	for _, c := range []syncClient{
		{
			name:   "awscli",
			create: "aws --endpoint-url SERVER s3 mb s3://BUCKET", up: "aws --endpoint-url SERVER s3 sync --only-show-errors --delete UP s3://BUCKET/tree",
			list: "aws --endpoint-url SERVER s3 ls --recursive --page-size 50 s3://BUCKET/tree/", folders: "aws --endpoint-url SERVER s3 ls s3://BUCKET/tree/",
			down: "aws --endpoint-url SERVER s3 sync --only-show-errors s3://BUCKET/tree DOWN", remove: "aws --endpoint-url SERVER s3 rb --force s3://BUCKET",
			folder: "PRE a dir/",
		},
		{
			name: "rclone",
			env: []string{"RCLONE_CONFIG=/dev/null", "RCLONE_CONFIG_S_TYPE=s3", "RCLONE_CONFIG_S_PROVIDER=Other", "RCLONE_CONFIG_S_ENDPOINT=SERVER",
				"RCLONE_CONFIG_S_ACCESS_KEY_ID=SYNC", "RCLONE_CONFIG_S_SECRET_ACCESS_KEY=the secret of the sync", "RCLONE_CONFIG_S_REGION=us-east-1", "RCLONE_RETRIES=1"},
			create: "rclone mkdir s:BUCKET", up: "rclone sync UP s:BUCKET/tree",
			list: "rclone lsf -R --files-only --s3-list-chunk 50 s:BUCKET/tree", folders: "rclone lsf s:BUCKET/tree",
			down: "rclone sync s:BUCKET/tree DOWN", remove: "rclone purge s:BUCKET", folder: "a dir/",
		},
		{
			name:   "s3cmd",
			create: "s3cmd mb s3://BUCKET", up: "s3cmd sync --delete-removed UP/ s3://BUCKET/tree/",
			list: "s3cmd ls -r s3://BUCKET/tree/", folders: "s3cmd ls s3://BUCKET/tree/",
			down: "s3cmd sync s3://BUCKET/tree/ DOWN/", remove: "s3cmd rb --recursive --force s3://BUCKET", folder: "DIR  s3://s3cmd/tree/a dir/",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			up, down := t.TempDir(), t.TempDir()
			run := func(command string) string {
				t.Helper()
				words := strings.Fields(command)
				program, err := exec.LookPath(words[0])
				require.NoError(t, err, "there is no %s: %s", words[0], howToInstall)
				if c.name == "s3cmd" {
					words = append(words, "--access_key=SYNC", "--secret_key=the secret of the sync", "--host="+host, "--host-bucket="+host, "--no-ssl", "--config=/dev/null", "--no-progress")
				}
				replace := strings.NewReplacer("BUCKET", c.name, "UP", up, "DOWN", down, "SERVER", p.s3)
				for i, w := range words {
					words[i] = replace.Replace(w)
				}
				cmd := exec.Command(program, words[1:]...)
				cmd.Env = append(os.Environ(), "AWS_ACCESS_KEY_ID=SYNC", "AWS_SECRET_ACCESS_KEY=the secret of the sync", "AWS_DEFAULT_REGION=us-east-1",
					"AWS_CA_BUNDLE=", "AWS_EC2_METADATA_DISABLED=true", "AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=/dev/null", "AWS_PAGER=", "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1", "LC_ALL=C.UTF-8")
				for _, e := range c.env {
					cmd.Env = append(cmd.Env, replace.Replace(e))
				}
				out, err := cmd.CombinedOutput()
				require.NoError(t, err, "%q: %s\nlistd: %s", words, out, p.errs)
				return string(out)
			}
			files := smallTree(t, up)
			run(c.create)
			run(c.up)
			require.Equal(t, len(files), strings.Count(strings.TrimSpace(run(c.list)), "\n")+1)
			require.Contains(t, run(c.folders), c.folder)

			// One file less, another one changed.
			for name := range files {
				if strings.HasSuffix(name, "_test.go") {
					require.NoError(t, os.Remove(filepath.Join(up, name)))
					delete(files, name)
					break
				}
			}
			files["a dir/ü + %2F & more.txt"] = "hello again"
			require.NoError(t, os.WriteFile(filepath.Join(up, "a dir/ü + %2F & more.txt"), []byte("hello again"), 0o600))
			run(c.up)
			run(c.down)
			require.Equal(t, files, readTree(t, down))
			run(c.remove)
			o := listd(t, "", "bucket", "list", "--server", p.s3, "--access-key", "SYNC", "--secret-key", "the secret of the sync")
			require.NotContains(t, o.out, c.name, o.err)
		})
	}
}
