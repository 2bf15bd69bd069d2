package main

import (
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

var programs = []string{"listd", "rebalancer"}

// build builds the release from the source tree at source, and writes it into the directory out, which must be empty or
// new. The release has packages and their bills of materials, the directory of a container image, and SHA256SUMS of all
// files.
func (r release) build(source, out string) error {
	source, err := filepath.Abs(source)
	if err != nil {
		return err
	}
	if out, err = filepath.Abs(out); err != nil {
		return err
	}
	if entries, err := os.ReadDir(out); err == nil && len(entries) > 0 {
		return fmt.Errorf("%s is not empty: choose an empty or a new directory", out)
	}
	built, err := os.MkdirTemp("", "evenkeel-packages-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(built)
	if err := r.compile(source, built, r.arch); err != nil {
		return err
	}
	if err := r.describe(source, built); err != nil {
		return err
	}
	return r.pack(source, built, out)
}

// compile builds the programs for the architecture arch into the directory `to`. The programs are linked statically, so
// that they run on every Linux distribution, and in a container without one.
func (r release) compile(source, to, arch string) error {
	for _, name := range programs {
		build := exec.Command("go", "build", "-o", filepath.Join(to, name), "-ldflags", r.ldflags(), "./cmd/"+name)
		build.Dir = source
		// The product's go.mod alone decides, and nothing of this machine.
		build.Env = append(os.Environ(), "GOFLAGS=-trimpath -buildvcs=false", "GOWORK=off", "CGO_ENABLED=0",
			"GOOS=linux", "GOARCH="+arch, "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=")
		if text, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("go build ./cmd/%s: %w\n%s", name, err, text)
		}
	}
	return nil
}

// ldflags returns the flags of the linker, which leave out the data for debuggers, and set the version and the commit
// that the programs print.
func (r release) ldflags() string {
	const version = "github.com/evenkeel/evenkeel/cmd/internal/daemon/version"
	return fmt.Sprintf("-s -w -X %[1]s.number=v%[2]s -X %[1]s.commit=%[3]s", version, r.version, r.commit)
}

// describe writes the files that belong to the programs into the directory built: manual pages, shell completions,
// licences and bills of materials. For another architecture, describe also builds programs that run on this machine.
func (r release) describe(source, built string) error {
	runs := built
	if r.arch != runtime.GOARCH {
		runs = filepath.Join(built, "host")
		if err := r.compile(source, runs, runtime.GOARCH); err != nil {
			return err
		}
	}
	for _, name := range programs {
		for file, args := range map[string][]string{
			name + ".1":    {"man"},
			name + ".bash": {"completion", "bash"},
			name + ".zsh":  {"completion", "zsh"},
			name + ".fish": {"completion", "fish"},
		} {
			text, err := exec.Command(filepath.Join(runs, name), args...).Output()
			if err != nil {
				return fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
			}
			if path.Ext(file) == ".1" {
				file, text = file+".gz", zip(text)
			}
			if err := os.WriteFile(filepath.Join(built, file), text, 0o644); err != nil {
				return err
			}
		}
		if err := r.bill(filepath.Join(built, name)); err != nil {
			return fmt.Errorf("the bill of materials of %s: %w", name, err)
		}
	}
	return licences(source, built)
}

// zip compresses text by gzip as Debian requires for manual pages: at the best level, without a name and a time.
func zip(text []byte) []byte {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(text)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		panic(err) // memory does not fail
	}
	return out.Bytes()
}

// bill writes the bill of materials of a program beside the program, in the format CycloneDX: the modules that the
// linker has recorded, and Go's standard library.
func (r release) bill(program string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	component := func(kind cdx.ComponentType, name, version string) cdx.Component {
		purl := "pkg:golang/" + name + "@" + version
		return cdx.Component{Type: kind, BOMRef: purl, Name: name, Version: version, PackageURL: purl}
	}
	main := component(cdx.ComponentTypeApplication, info.Path, "v"+r.version)
	parts := []cdx.Component{component(cdx.ComponentTypeLibrary, "std", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		parts = append(parts, component(cdx.ComponentTypeLibrary, m.Path, m.Version))
	}
	refs := []string{}
	for _, c := range parts {
		refs = append(refs, c.BOMRef)
	}
	made := cdx.NewBOM()
	made.Metadata = &cdx.Metadata{Timestamp: r.made.Format(time.RFC3339), Component: &main}
	made.Components = &parts
	made.Dependencies = &[]cdx.Dependency{{Ref: main.BOMRef, Dependencies: &refs}}
	var out bytes.Buffer
	if err := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).Encode(made); err != nil {
		return err
	}
	return os.WriteFile(program+".cdx.json", out.Bytes(), 0o644)
}

// aLicence matches the names of files that must accompany copies of a library, e.g. LICENSE or NOTICE.
var aLicence = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)`)

// licences writes the licences of all modules in the programs, of Go and of evenkeel into one file. A module without a
// licence is an error.
func licences(source, built string) error {
	dirs := map[string]string{} // by the module and its version
	for _, name := range programs {
		info, err := buildinfo.ReadFile(filepath.Join(built, name))
		if err != nil {
			return err
		}
		for _, m := range info.Deps {
			dirs[m.Path+"@"+m.Version] = ""
		}
	}
	modules := slices.Sorted(func(yield func(string) bool) {
		for m := range dirs {
			if !yield(m) {
				return
			}
		}
	})
	download := exec.Command("go", append([]string{"mod", "download", "-json"}, modules...)...)
	download.Dir, download.Env = source, append(os.Environ(), "GOWORK=off")
	text, err := download.Output()
	if err != nil {
		return fmt.Errorf("go mod download: %w", err)
	}
	for list := json.NewDecoder(bytes.NewReader(text)); ; {
		var m struct{ Path, Version, Dir string }
		if err := list.Decode(&m); err == io.EOF {
			break
		} else if err != nil {
			return err
		}
		dirs[m.Path+"@"+m.Version] = m.Dir
	}
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return err
	}
	dirs["evenkeel"], dirs["Go"] = source, strings.TrimSpace(string(goroot))
	var out bytes.Buffer
	for _, m := range append([]string{"evenkeel", "Go"}, modules...) {
		entries, err := os.ReadDir(dirs[m])
		if err != nil {
			return err
		}
		found := false
		for _, e := range entries {
			if e.IsDir() || !aLicence.MatchString(e.Name()) {
				continue
			}
			text, err := os.ReadFile(filepath.Join(dirs[m], e.Name()))
			if err != nil {
				return err
			}
			fmt.Fprintf(&out, "==== %s: %s\n\n%s\n\n", m, e.Name(), bytes.TrimSpace(text))
			found = true
		}
		if !found {
			return fmt.Errorf("%s has no file with a licence: nobody may be given a copy of it", m)
		}
	}
	return os.WriteFile(filepath.Join(built, "copyright"), out.Bytes(), 0o644)
}
