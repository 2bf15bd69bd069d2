package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// kinds has each kind of mutant, in places that make it hard; its test notices every one.
const kinds = `package kinds

import (
	"errors"
	"time"
)

const most = 5 << 1 // what is constant has a build of its own

type size int64

var (
	table = map[string]bool{"yes": true, "no": false}
	wait  = 3 * time.Second
	large = size(7)<<2 | 1
)

func Check(n int, name string, ok bool) (left size, err error) {
	defer func() { left++ }()
	if n < 0 || n > most && !ok {
		return 0, errors.New("n")
	}
	switch {
	case name == "" && ok:
		return 1, errors.New("name")
	case table[name]:
		left = large
	}
	switch name {
	case "two":
		left -= 2
	}
	for i := range 10 {
		if i >= n {
			break
		}
		if i&1 == 1 {
			continue
		}
		left += size(i+1) * 2
	}
	if isOdd(n) {
		left *= 3
	}
	return left / 2, nil
}

func isOdd(n int) bool { return n%2 != 0 }

func Wait() time.Duration { return wait - time.Second }

var digits [3]byte

func Digit(c byte) byte { return c>>4 + '0' }
`

const kindsTest = `package kinds

import (
	"fmt"
	"hash/crc32"
	"testing"
)

func TestAll(t *testing.T) {
	all := fmt.Sprint(Wait(), Digit('A'))
	for _, name := range []string{"", "a", "yes", "no", "two"} {
		for n := -1; n <= 12; n++ {
			left, err := Check(n, name, n%3 == 0)
			all += fmt.Sprint(" ", left, err)
			left, err = Check(n, name, n%3 != 0)
			all += fmt.Sprint(" ", left, err)
		}
	}
	if sum := crc32.ChecksumIEEE([]byte(all)); sum != 0x31e83e94 {
		t.Fatalf("%08x: %s", sum, all)
	}
}
`

// TestTogether: the mutants of a build are one each, and without any the tests pass.
func TestTogether(t *testing.T) {
	t.Setenv("GOFLAGS", "-trimpath")
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module toy\n\ngo 1.26\n", "kinds.go": kinds, "kinds_test.go": kindsTest,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	pkgs, err := list(t.Context(), dir, ".")
	require.NoError(t, err)
	sites, err := sitesOf(dir, dir, pkgs[0].GoFiles)
	require.NoError(t, err)
	own, err := join(t.Context(), dir, pkgs[0], sites, t.TempDir(), io.Discard)
	require.NoError(t, err)
	require.Len(t, own.tests, 1)
	var apart []string
	for _, m := range sites {
		if own.numbers[m] == 0 {
			apart = append(apart, strings.TrimPrefix(m.Name(), "kinds.go "))
			continue
		}
		outcome, err := own.judge(t.Context(), m, time.Second)
		require.NoError(t, err)
		require.Equal(t, Killed, outcome, m.Name())
	}
	const line = " in: const most = 5 << 1 => "
	require.Equal(t, []string{
		"- [arith] 5 << 1 => 5 >> 1", "- [int] 5 (column 14)" + line + "5+1", "- [int] 1 (column 19)" + line + "1-1",
		`Check [case] case "two": left -= 2 => (case removed)`,
		"- [int] 3 (column 13) in: var digits [3]byte => 3+1",
	}, apart)
}
