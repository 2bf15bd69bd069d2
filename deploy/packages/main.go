// Command packages builds the files of a release: deb and rpm packages, the root of a container image, bills of
// materials and checksums. The same commit gives the same bytes, in whichever directory it is built, with the same
// release of Go.
//
//	packages OUT      run in the root of the source tree; GOARCH names another architecture
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: packages OUT   (from the root of the source tree)")
		os.Exit(2)
	}
	r, err := present(".")
	if err == nil {
		err = r.build(".", os.Args[1])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "packages:", err)
		os.Exit(1)
	}
}

// release is what identifies a release: its version, the commit from which it is built, and the architecture.
type release struct {
	version string    // that of packages: one that comes later sorts behind
	commit  string    // of git, for people
	made    time.Time // of every file in it
	arch    string    // Go's name
}

// present returns the release of the commit that is checked out in the source tree at source: its version, commit and
// architecture. The architecture is that of GOARCH, or else of this machine.
func present(source string) (release, error) {
	r := release{arch: runtime.GOARCH}
	if other := os.Getenv("GOARCH"); other != "" {
		r.arch = other
	}
	commit, err := git(source, "log", "-1", "--format=%H %ct")
	if err != nil {
		return r, err
	}
	hash, seconds, _ := strings.Cut(commit, " ")
	at, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return r, fmt.Errorf("the time of the commit: %w", err)
	}
	changed, err := git(source, "status", "--porcelain")
	if err != nil {
		return r, err
	}
	tag, _ := git(source, "describe", "--tags", "--exact-match", "--match", "v[0-9]*") // it need not have one
	last, _ := git(source, "describe", "--tags", "--abbrev=0", "--match", "v[0-9]*")
	r.commit, r.made = hash, time.Unix(at, 0).UTC()
	r.version, err = versionOf(tag, last, hash, r.made, changed != "")
	return r, err
}

// aTag matches a git tag that names a version: v1.2.3 or v1.2.3-rc.1.
var aTag = regexp.MustCompile(`^v([0-9]+\.[0-9]+\.[0-9]+)(?:-([0-9A-Za-z.]+))?$`)

// versionOf returns the version of the packages for a commit. If the commit has a tag, it is the version in the tag. If
// not, it is the version in the last tag, followed by the time and the hash of the commit. dpkg and rpm sort the
// versions of later commits behind those of earlier ones. The parameter changed is true if the source tree has
// uncommitted changes.
func versionOf(tag, last, commit string, made time.Time, changed bool) (string, error) {
	version := "0.0.0"
	for _, name := range []string{last, tag} {
		if name == "" {
			continue
		}
		m := aTag.FindStringSubmatch(name)
		if m == nil {
			return "", fmt.Errorf("the tag %s is no version like v1.2.3 or v1.2.3-rc.1", name)
		}
		if version = m[1]; m[2] != "" {
			version += "~" + m[2] // it sorts in front of the version itself
		}
	}
	if tag == "" || changed {
		version += "+" + made.UTC().Format("20060102150405") + "." + commit[:min(12, len(commit))]
	}
	if changed {
		version += ".changed"
	}
	return version, nil
}

func git(dir string, args ...string) (string, error) {
	out, err := exec.Command("git", append([]string{"-C", dir}, args...)...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("git %s: %s", strings.Join(args, " "), strings.TrimSpace(string(exit.Stderr)))
	}
	return strings.TrimSpace(string(out)), err
}
