package s3tour

import (
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// smallFile and mediumFile are the largest sizes of files in bytes: of files that are kept in rows, and of other files.
const (
	smallFile  = 4 << 10
	mediumFile = 512 << 10
)

// large is the name of a file that is so large that clients put it in parts.
const large = "large/file.bin"

// awkward is the name of a file with characters that clients encode in different ways, e.g. in signatures.
const awkward = "a dir/ü + %2F & more=?#.txt"

// tree fills the directory dir with n real files, and returns the contents of all files by their paths. The files are
// chosen at random from GOROOT/src, among those of at most largest bytes. If largeBytes is positive, there is one more
// file, of that size.
func tree(t *testing.T, dir string, n int, largest, largeBytes int64) map[string]string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOROOT").Output()
	require.NoError(t, err)
	root := filepath.Join(strings.TrimSpace(string(out)), "src")
	var all []string
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Size() > 0 && info.Size() <= largest {
			all = append(all, path)
		}
		return err
	}))
	require.Greater(t, len(all), 1000)
	if len(all) > n {
		rand.New(rand.NewPCG(1, uint64(n))).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		all = slices.Clone(all[:n])
	}
	files := map[string]string{awkward: "hello"}
	if largeBytes > 0 {
		data := make([]byte, largeBytes)
		_, _ = rand.NewChaCha8([32]byte{1}).Read(data)
		files[large] = string(data)
	}
	for _, path := range all {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		name, err := filepath.Rel(root, path)
		require.NoError(t, err)
		files[filepath.ToSlash(name)] = string(data)
	}
	for name, data := range files {
		write(t, dir, name, data)
	}
	return files
}

func write(t *testing.T, dir, name, data string) {
	t.Helper()
	at := filepath.Join(dir, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o700))
	require.NoError(t, os.WriteFile(at, []byte(data), 0o600))
}

func remove(t *testing.T, dir, name string) {
	t.Helper()
	require.NoError(t, os.Remove(filepath.Join(dir, name)))
}

// read returns the contents of all files below dir, by their paths.
func read(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		name, rerr := filepath.Rel(dir, path)
		require.NoError(t, rerr)
		files[filepath.ToSlash(name)] = string(data)
		return err
	}))
	return files
}
