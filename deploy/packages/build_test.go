package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const checkout = "../.."

// of is a release of the source tree as it is, with another version.
func of(version string) release {
	return release{
		version: version, commit: "0123456789abcdef0123456789abcdef01234567",
		made: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), arch: runtime.GOARCH,
	}
}

// built is where the release 1.0.0 of the source tree is; the tests share it.
func built(t *testing.T) string {
	t.Helper()
	if shared.dir == "" {
		dir, err := os.MkdirTemp("", "evenkeel-release-")
		require.NoError(t, err)
		shared.dir = dir
		require.NoError(t, of("1.0.0").build(checkout, filepath.Join(dir, "release")))
	}
	require.FileExists(t, filepath.Join(shared.dir, "release", "SHA256SUMS"), "an earlier test could not build it")
	return filepath.Join(shared.dir, "release")
}

var shared struct{ dir string }

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.dir != "" {
		_ = os.RemoveAll(shared.dir)
	}
	os.Exit(code)
}

func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	require.NoError(t, err, "%s %s: %s", name, strings.Join(args, " "), out)
	return string(out)
}

// debOf is the package of a release.
func debOf(dir, version string) string {
	return filepath.Join(dir, "evenkeel_"+version+"_"+runtime.GOARCH+".deb")
}

func rpmOf(t *testing.T, dir string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "evenkeel-*.rpm"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	return found[0]
}

// unpacked is the root of that deb, which tests only read.
func unpacked(t *testing.T) string {
	t.Helper()
	file, root := debOf(built(t), "1.0.0"), filepath.Join(shared.dir, "root")
	if _, err := os.Stat(root); err != nil {
		output(t, "dpkg-deb", "-x", file, root)
	}
	return root
}

func TestVersionsOfPackagesAscend(t *testing.T) {
	first, second := time.Unix(1_800_000_000, 0), time.Unix(1_800_000_900, 0)
	const a, b = "aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb"
	var all []string
	for _, c := range []struct {
		tag, last, commit string
		made              time.Time
		changed           bool
	}{
		{"", "", b, first, false},
		{"", "", a, second, false},
		{"", "", a, second, true},
		{"v1.0.0-rc.1", "v1.0.0-rc.1", b, first, false},
		{"", "v1.0.0-rc.1", a, second, false},
		{"v1.0.0", "v1.0.0", b, first, false},
		{"", "v1.0.0", a, second, false},
		{"v1.0.1", "v1.0.1", a, second, false},
	} {
		v, err := versionOf(c.tag, c.last, c.commit, c.made, c.changed)
		require.NoError(t, err)
		all = append(all, v)
	}
	require.Equal(t, "0.0.0+20270115080000.bbbbbbbbbbbb", all[0])
	require.Equal(t, "1.0.0~rc.1", all[3])
	require.Equal(t, "1.0.0", all[5])
	for i, v := range all[1:] {
		output(t, "dpkg", "--compare-versions", all[i], "lt", v)
	}
	_, err := versionOf("version-1", "", a, first, false)
	require.ErrorContains(t, err, "version-1")
}

// Two directories, as two people would have them.
func TestTheSameSourceGivesTheSameBytes(t *testing.T) {
	first := built(t)
	other := filepath.Join(t.TempDir(), "of", "somebody else")
	for _, name := range strings.Split(strings.TrimSuffix(output(t, "git", "-C", checkout, "ls-files", "-z",
		"--cached", "--others", "--exclude-standard"), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(checkout, name))
		if os.IsNotExist(err) {
			continue // deleted, and not committed
		}
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(other, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(other, name), text, 0o600))
	}
	second := filepath.Join(t.TempDir(), "release")
	require.NoError(t, of("1.0.0").build(other, second))

	sums, err := os.ReadFile(filepath.Join(first, "SHA256SUMS"))
	require.NoError(t, err)
	again, err := os.ReadFile(filepath.Join(second, "SHA256SUMS"))
	require.NoError(t, err)
	require.Equal(t, string(sums), string(again))
	require.Equal(t, 6, strings.Count(string(sums), "\n"), string(sums))
	check := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	check.Dir = second
	text, err := check.CombinedOutput()
	require.NoError(t, err, string(text))
}

func TestABuildDoesNotOverwrite(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mine"), nil, 0o600))
	require.ErrorContains(t, of("1.0.0").build(checkout, dir), "not empty")
}

// Both packages have the same files, but for the places of zsh.
func TestPackagesHaveTheirFiles(t *testing.T) {
	want := []string{
		"/etc/evenkeel/evenkeel.yaml", "/usr/bin/listd", "/usr/bin/rebalancer",
		"/usr/lib/systemd/system/evenkeel-listd.service", "/usr/lib/systemd/system/evenkeel-rebalancer.service",
		"/usr/lib/sysusers.d/evenkeel.conf",
		"/usr/share/man/man1/listd.1.gz", "/usr/share/man/man1/rebalancer.1.gz",
		"/usr/share/bash-completion/completions/listd", "/usr/share/bash-completion/completions/rebalancer",
		"/usr/share/fish/vendor_completions.d/listd.fish", "/usr/share/fish/vendor_completions.d/rebalancer.fish",
		"/usr/share/doc/evenkeel/install.md", "/usr/share/doc/evenkeel/copyright",
		"/usr/share/doc/evenkeel/listd.cdx.json", "/usr/share/doc/evenkeel/rebalancer.cdx.json",
		"/usr/share/doc/evenkeel/examples/alerts.yaml", "/usr/share/doc/evenkeel/examples/dashboard.json",
	}
	t.Run("deb", func(t *testing.T) {
		file := debOf(built(t), "1.0.0")
		got := regexp.MustCompile(`(?m) \.(/\S*[^/\s])$`).FindAllStringSubmatch(output(t, "dpkg-deb", "-c", file), -1)
		var names []string
		for _, m := range got {
			names = append(names, m[1])
		}
		require.Subset(t, names, append(want, "/usr/share/zsh/vendor-completions/_listd"))
		require.NotContains(t, names, "/usr/share/zsh/site-functions/_listd")
		require.Contains(t, output(t, "dpkg-deb", "-c", file), "-rw-r----- root/root")
		require.Equal(t, "/etc/evenkeel/evenkeel.yaml\n", output(t, "dpkg-deb", "--info", file, "conffiles"))
		require.Equal(t, "1.0.0", strings.TrimSpace(output(t, "dpkg-deb", "--field", file, "Version")))
	})
	t.Run("rpm", func(t *testing.T) {
		file := rpmOf(t, built(t))
		names := strings.Fields(output(t, "rpm", "-qpl", file))
		require.Subset(t, names, append(want, "/usr/share/zsh/site-functions/_listd"))
		require.NotContains(t, names, "/usr/share/zsh/vendor-completions/_listd")
		require.Equal(t, "/etc/evenkeel/evenkeel.yaml", strings.TrimSpace(output(t, "rpm", "-qpc", file)))
		require.Contains(t, output(t, "rpm", "-qp", "--requires", file), "systemd")
		users, err := os.ReadFile(filepath.Join(checkout, "deploy/systemd/evenkeel.sysusers"))
		require.NoError(t, err)
		user := regexp.MustCompile(`(?m)^u .*`).FindString(string(users))
		require.Contains(t, output(t, "rpm", "-qp", "--scripts", file), user)
	})
}

func TestProgramsAreStatic(t *testing.T) {
	root := unpacked(t)
	for _, name := range programs {
		file, err := elf.Open(filepath.Join(root, "usr/bin", name))
		require.NoError(t, err)
		for _, part := range file.Progs {
			require.NotEqual(t, elf.PT_INTERP, part.Type, "%s needs a loader", name)
		}
		require.NoError(t, file.Close())
	}
}

func TestManualPagesAndCompletions(t *testing.T) {
	root := unpacked(t)
	for _, name := range programs {
		file, err := os.Open(filepath.Join(root, "usr/share/man/man1", name+".1.gz"))
		require.NoError(t, err)
		page, err := gzip.NewReader(file)
		require.NoError(t, err)
		text, err := io.ReadAll(page)
		require.NoError(t, err)
		require.NoError(t, file.Close())
		require.Contains(t, string(text), ".TH "+strings.ToUpper(name))
		// As bash reads it: the program completes the name of a command.
		script := `. "$1"; PATH=$2:$PATH; COMP_WORDS=("$3" comp); COMP_CWORD=1; "_$3"; echo "${COMPREPLY[@]}"`
		require.Equal(t, "completion\n", output(t, "bash", "-c", script, "bash",
			filepath.Join(root, "usr/share/bash-completion/completions", name), filepath.Join(root, "usr/bin"), name))
	}
}

// The bill of materials has what the linker put into the program.
func TestBillsOfMaterialsAreComplete(t *testing.T) {
	root := unpacked(t)
	for _, name := range programs {
		var bill struct {
			BOMFormat string
			Metadata  struct {
				Component struct{ Name, Version string }
			}
			Components []struct {
				Name, Version, PURL string
			}
		}
		text, err := os.ReadFile(filepath.Join(root, "usr/share/doc/evenkeel", name+".cdx.json"))
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, &bill))
		require.Equal(t, "CycloneDX", bill.BOMFormat)
		require.Equal(t, "github.com/evenkeel/evenkeel/cmd/"+name, bill.Metadata.Component.Name)
		require.Equal(t, "v1.0.0", bill.Metadata.Component.Version)
		info, err := buildinfo.ReadFile(filepath.Join(root, "usr/bin", name))
		require.NoError(t, err)
		want, got := []string{"std@" + strings.TrimPrefix(info.GoVersion, "go")}, []string{}
		for _, m := range info.Deps {
			want = append(want, m.Path+"@"+m.Version)
		}
		for _, c := range bill.Components {
			got = append(got, c.Name+"@"+c.Version)
			require.NotEmpty(t, c.PURL, c.Name)
		}
		require.ElementsMatch(t, want, got)
	}
	licences, err := os.ReadFile(filepath.Join(root, "usr/share/doc/evenkeel/copyright"))
	require.NoError(t, err)
	require.Contains(t, string(licences), "==== github.com/cockroachdb/pebble/v2@")
}

// The settings of the package are taken, and so is what its comments suggest.
func TestSettingsAreTaken(t *testing.T) {
	root := unpacked(t)
	shipped, err := os.ReadFile(filepath.Join(root, "etc/evenkeel/evenkeel.yaml"))
	require.NoError(t, err)
	listd := filepath.Join(root, "usr/bin/listd")
	run := func(text string) string {
		file := filepath.Join(t.TempDir(), "evenkeel.yaml")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		output(t, filepath.Join(root, "usr/bin/rebalancer"), "--config", file, "schema", "print", "--replication", "dc1=3")
		return output(t, listd, "--config", file, "config")
	}
	require.Regexp(t, `(?m)^  data: /var/lib/evenkeel/data +# file$`, run(string(shipped)))

	suggested := regexp.MustCompile(`(?m)^( *)#([a-z-]+: )`).ReplaceAllString(string(shipped), "$1$2")
	suggested = regexp.MustCompile(`(?m)^  data: .*\n`).ReplaceAllString(suggested, "") // the comment says so
	require.GreaterOrEqual(t, strings.Count(suggested, "\n"), 40)
	effective := run(suggested)
	for _, setting := range []string{"listen: 0.0.0.0:9000", "local-dc: dc1", "max-rows: 100000", "log-format: json"} {
		require.Regexp(t, `(?m)^ *`+setting+` +# file$`, effective)
	}
}

// exposure is at most this of 100, as systemd counts; a service without any protection has 96.
const exposure = "13"

func TestUnits(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is missing: the package systemd has it")
	}
	root := unpacked(t)
	dir := t.TempDir()
	for _, name := range []string{"evenkeel-listd.service", "evenkeel-rebalancer.service"} {
		text, err := os.ReadFile(filepath.Join(root, "usr/lib/systemd/system", name))
		require.NoError(t, err)
		// Here the programs are elsewhere.
		text = bytes.ReplaceAll(text, []byte("ExecStart=/usr/bin"), []byte("ExecStart="+filepath.Join(root, "usr/bin")))
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, text, 0o600))
		t.Run(name, func(t *testing.T) {
			require.Empty(t, output(t, "systemd-analyze", "verify", "--man=no", file))
			report := output(t, "systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold="+exposure, file)
			lines := strings.Split(strings.TrimSpace(report), "\n")
			t.Log(lines[len(lines)-1])
		})
	}
}

// What the image's file names is in its root, and nothing in it runs as root.
func TestContainerFile(t *testing.T) {
	image := filepath.Join(built(t), "container")
	spec := instructions(t, filepath.Join(image, "Containerfile"))
	require.Equal(t, []string{"scratch"}, spec["FROM"])
	require.Equal(t, []string{"rootfs.tar /"}, spec["ADD"])
	files := map[string]*tar.Header{}
	root, err := os.Open(filepath.Join(image, "rootfs.tar"))
	require.NoError(t, err)
	defer root.Close()
	for r := tar.NewReader(root); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		files["/"+strings.TrimSuffix(h.Name, "/")] = h
	}
	for _, program := range append(words(t, spec["ENTRYPOINT"][0])[:1],
		words(t, regexp.MustCompile(`CMD (\[.*)`).FindStringSubmatch(spec["HEALTHCHECK"][0])[1])[0]) {
		require.Contains(t, files, program)
		require.EqualValues(t, 0o755, files[program].Mode)
	}
	require.Equal(t, []string{"65532:65532"}, spec["USER"])
	for _, dir := range append(words(t, spec["VOLUME"][0]), spec["WORKDIR"]...) {
		require.Contains(t, files, dir)
		require.Equal(t, imageUser, files[dir].Uid, dir)
		require.EqualValues(t, 0o700, files[dir].Mode, dir)
	}
	_, config, _ := strings.Cut(spec["ENV"][0], "=")
	require.Contains(t, files, config)
	require.Equal(t, imageUser, files[config].Uid)
}

// instructions are those of a container file.
func instructions(t *testing.T, file string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	out := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		name, rest, _ := strings.Cut(line, " ")
		require.True(t, slices.Contains([]string{
			"FROM", "ADD", "ENV", "USER", "WORKDIR", "VOLUME", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD",
		}, name), line)
		out[name] = append(out[name], rest)
	}
	return out
}

// words are those of the JSON form of an instruction.
func words(t *testing.T, text string) (out []string) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), &out))
	return out
}
