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

// Sizes of files: of the largest that are kept in rows, and of others.
const (
	smallFile  = 4 << 10
	mediumFile = 512 << 10
)

// large is the name of a file that clients put in parts.
const large = "large/file.bin"

// awkward is a name with what clients and signatures disagree about.
const awkward = "a dir/ü + %2F & more=?#.txt"

// tree makes a directory tree of so many real files: those of GOROOT/src that are not larger than the largest,
// spread evenly over it, and one of largeBytes, if that is positive. It returns them by their paths.
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

// read returns all files under dir.
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
