// Package realkeys returns keys as they occur in practice, for tests and benchmarks: the paths of this machine's files,
// and names from a seeded generator that look like those in object stores.
package realkeys

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"go/build"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// maxKeyBytes is the largest size of a key in S3, in bytes.
const maxKeyBytes = 1024

// Collect returns n distinct keys, sorted bytewise. The keys are paths of files below /usr, GOROOT and the module
// cache, without the leading slash. If the machine has too few files, further keys come from Names(seed). Paths that
// are too long for S3 are left out.
func Collect(n int, seed uint64) [][]byte {
	set := make(map[string]struct{}, n)
	for _, root := range roots() {
		_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if len(set) >= n {
				return filepath.SkipAll
			}
			if err == nil && d.Type().IsRegular() && len(path) <= maxKeyBytes {
				set[strings.TrimPrefix(filepath.ToSlash(path), "/")] = struct{}{}
			}
			return nil // what can't be read is left out
		})
	}
	for next := Names(seed); len(set) < n; {
		set[next()] = struct{}{}
	}
	keys := make([][]byte, 0, n)
	for k := range set {
		keys = append(keys, []byte(k))
	}
	slices.SortFunc(keys, bytes.Compare)
	return keys
}

func roots() []string {
	list := []string{"/usr", build.Default.GOROOT}
	if out, err := exec.Command("go", "env", "GOROOT", "GOMODCACHE").Output(); err == nil {
		list = append(list, strings.Fields(string(out))...)
	}
	return slices.DeleteFunc(list, func(dir string) bool {
		info, err := os.Stat(dir)
		return dir == "" || err != nil || !info.IsDir()
	})
}

// Names returns a generator of object names in the styles that clients of object stores use: dates, hashes, users,
// numbered parts, and names with spaces or with letters beyond ASCII. Names may repeat.
func Names(seed uint64) func() string {
	r := rand.New(rand.NewPCG(seed, 0x6e616d6573))
	words := []string{"alpha", "backup", "café", "data", "événement", "foto", "Größe", "invoice", "log", "mañana",
		"report 2024", "данные", "日本"}
	ext := []string{".parquet", ".json.gz", ".jpg", ".pdf", "", ".tar.zst"}
	return func() string {
		word, end := words[r.IntN(len(words))], ext[r.IntN(len(ext))]
		switch r.IntN(5) {
		case 0:
			return fmt.Sprintf("logs/%04d/%02d/%02d/%02d/%s-%06d%s", 2019+r.IntN(6), 1+r.IntN(12), 1+r.IntN(28),
				r.IntN(24), word, r.IntN(1e6), end)
		case 1:
			sum := md5.Sum(fmt.Appendf(nil, "%d", r.Uint64()))
			return hex.EncodeToString(sum[:]) + end
		case 2:
			return fmt.Sprintf("user=%d/%s/%s %d%s", r.IntN(5000), word, word, r.IntN(1000), end)
		case 3:
			return fmt.Sprintf("tenant-%03d/uploads/%s/part-%05d-of-%05d%s", r.IntN(200), word, r.IntN(1e5), 100000,
				end)
		default:
			return fmt.Sprintf("%s//%s/%x+%d&x=%%%d%s", word, word, r.Uint32(), r.IntN(100), r.IntN(100), end)
		}
	}
}

// Awkward returns n distinct keys, sorted bytewise, that programs often handle wrongly. The keys have spaces, newlines,
// percent signs, plus signs and letters beyond ASCII, are as long as possible, or are prefixes of each other. If binary
// is true, some keys also have bytes that are not UTF-8, such as 0x00 and 0xFF.
func Awkward(n int, seed uint64, binary bool) [][]byte {
	r := rand.New(rand.NewPCG(seed, 0x61776b))
	atoms := []string{" ", "  ", "\n", "\r\n", "\t", "%", "%2F", "%00", "+", "/", "//", ".", "..", "/../", "a", "aa",
		"A", "é", "e\u0301", "日本", "\U0001F980", "&", "?", "#", ";", "=", "<", ">", "\"", "'", "\\", "\\x41", "*", "~", "\u007f", "\u0080", "\uffff"}
	if binary {
		atoms = append(atoms, "\x00", "\x00\x00", "\xff", "\xff\xff", "\xfe", "\x80", "\xc3", "\x01")
	}
	set := map[string]struct{}{}
	chain := ""
	for len(set) < n {
		switch r.IntN(8) {
		case 0: // the next key of a chain of prefixes
			if chain += atoms[r.IntN(len(atoms))]; len(chain) > maxKeyBytes {
				chain = atoms[r.IntN(len(atoms))]
			}
			set[chain] = struct{}{}
		case 1: // the longest key there is, differing at its end
			atom := atoms[r.IntN(len(atoms))]
			long := strings.Repeat(atom, maxKeyBytes/len(atom))
			tail := fmt.Sprintf("%08x", r.Uint32())
			long = strings.ToValidUTF8(long[:min(len(long), maxKeyBytes-len(tail)-3)], "")
			if binary && r.IntN(2) == 0 {
				tail = "\xff" + tail
			}
			set[long+strings.Repeat("z", maxKeyBytes-len(long)-len(tail))+tail] = struct{}{}
		default:
			var b strings.Builder
			for range 1 + r.IntN(6) {
				b.WriteString(atoms[r.IntN(len(atoms))])
			}
			set[b.String()] = struct{}{}
		}
	}
	keys := make([][]byte, 0, n)
	for k := range set {
		keys = append(keys, []byte(k))
	}
	slices.SortFunc(keys, bytes.Compare)
	return keys
}

// Cuts returns n of the sorted keys as cuts, which divide the keys into n+1 parts of about equal size.
func Cuts(keys [][]byte, n int) [][]byte {
	cuts := make([][]byte, 0, n)
	for i := 1; i <= n; i++ {
		cuts = append(cuts, keys[i*len(keys)/(n+1)])
	}
	return cuts
}
