package cassandratest

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Version is the release of Cassandra that the nodes run, as in pom.xml.
const Version = "5.0.8"

// CacheVariable is the name of the environment variable that sets the directory in which the jars are kept between
// runs.
const CacheVariable = "EVENKEEL_CASSANDRA_CACHE"

//go:embed pom.xml
var pom []byte

const installHint = "run scripts/install-tools, which installs them from Debian's packages"

// Jars returns the directory with Cassandra's jars. The first call fetches the jars by Maven (100 files, 67 MB). Other
// processes wait for the one that fetches. An interrupted fetch leaves nothing incomplete behind.
func Jars(ctx context.Context) (string, error) {
	base, err := cacheFolder()
	if err != nil {
		return "", err
	}
	lib := filepath.Join(base, "cassandra-"+Version)
	if err := os.MkdirAll(base, 0o755); err != nil {
		return "", fmt.Errorf("the cache folder of Cassandra's jars (set %s to move it): %w", CacheVariable, err)
	}
	lock, err := os.OpenFile(lib+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", fmt.Errorf("the lock beside Cassandra's jars: %w", err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("locking %s: %w", lock.Name(), err)
	}
	if _, err := os.Stat(lib); err == nil {
		return lib, nil
	}
	return lib, fetch(ctx, base, lib)
}

func cacheFolder() (string, error) {
	if folder := os.Getenv(CacheVariable); folder != "" {
		return filepath.Abs(folder)
	}
	folder, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no folder to keep Cassandra's jars in (set %s): %w", CacheVariable, err)
	}
	return filepath.Join(folder, "evenkeel"), nil
}

func fetch(ctx context.Context, base, lib string) error {
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return fmt.Errorf("there is no mvn on the path, and Maven fetches Cassandra %s: %s", Version, installHint)
	}
	work, err := os.MkdirTemp(base, "fetch-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := os.WriteFile(filepath.Join(work, "pom.xml"), pom, 0o644); err != nil {
		return err
	}
	fetched := filepath.Join(work, "lib")
	cmd := exec.CommandContext(ctx, mvn, "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory="+fetched)
	cmd.Dir = work
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("fetching Cassandra %s with Maven: %w\n%s", Version, err, tail(string(out), 20))
	}
	return os.Rename(fetched, lib)
}

// java returns the path of a Java 17, on which this release of Cassandra runs. It looks in JAVA_HOME, in the search
// path and in /usr/lib/jvm.
func java(ctx context.Context) (string, error) {
	candidates := []string{}
	if home := os.Getenv("JAVA_HOME"); home != "" {
		candidates = append(candidates, filepath.Join(home, "bin", "java"))
	}
	candidates = append(candidates, "java")
	installed, err := filepath.Glob("/usr/lib/jvm/*17*/bin/java")
	if err != nil {
		return "", err
	}
	for _, path := range append(candidates, installed...) {
		out, err := exec.CommandContext(ctx, path, "-version").CombinedOutput()
		if err == nil && strings.Contains(string(out), `version "17.`) {
			return path, nil
		}
	}
	return "", fmt.Errorf("no Java 17 in JAVA_HOME, on the path or in /usr/lib/jvm, and Cassandra %s needs it: %s",
		Version, installHint)
}

// tail returns the last n lines of a text.
func tail(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
