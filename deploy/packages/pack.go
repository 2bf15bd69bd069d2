package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	"github.com/goreleaser/nfpm/v2/rpm"
)

// packager writes packages in one format: deb or rpm.
type packager interface {
	Package(*nfpm.Info, io.Writer) error
	ConventionalFileName(*nfpm.Info) string
}

// pack writes the files of the release into the directory out: packages, the directory of a container image, bills of
// materials and checksums. built is the directory with the compiled programs.
func (r release) pack(source, built, out string) error {
	image := filepath.Join(out, "container")
	if err := os.MkdirAll(image, 0o755); err != nil {
		return err
	}
	spec, err := os.ReadFile(filepath.Join(source, "deploy", "packages", "nfpm.yaml"))
	if err != nil {
		return err
	}
	text := os.Expand(string(spec), func(name string) string {
		return map[string]string{"ROOT": source, "BUILT": built, "VERSION": r.version, "ARCH": r.arch}[name]
	})
	for kind, p := range map[string]packager{"deb": deb.Default, "rpm": rpm.DefaultRPM} {
		config, err := nfpm.Parse(strings.NewReader(text))
		if err != nil {
			return err
		}
		info, err := config.Get(kind)
		if err != nil {
			return err
		}
		info.MTime, info.RPM.BuildHost = r.made, "localhost"
		if err := nfpm.PrepareForPackager(info, kind); err != nil {
			return err
		}
		var file bytes.Buffer
		if err := p.Package(info, &file); err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
		if err := os.WriteFile(filepath.Join(out, p.ConventionalFileName(info)), file.Bytes(), 0o644); err != nil {
			return err
		}
		if kind == "deb" {
			root, err := r.imageRoot(info.Contents)
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(image, "rootfs.tar"), root, 0o644); err != nil {
				return err
			}
		}
	}
	for from, to := range map[string]string{
		filepath.Join(source, "deploy/container/Containerfile"): filepath.Join(image, "Containerfile"),
		filepath.Join(built, "listd.cdx.json"):                  filepath.Join(out, r.billName("listd")),
		filepath.Join(built, "rebalancer.cdx.json"):             filepath.Join(out, r.billName("rebalancer")),
	} {
		text, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		if err := os.WriteFile(to, text, 0o644); err != nil {
			return err
		}
	}
	return checksums(out)
}

func (r release) billName(program string) string {
	return fmt.Sprintf("%s_%s_%s.cdx.json", program, r.version, r.arch)
}

// imageUser is the number of the user that owns the data in containers. No distribution gives the number to another
// user.
const imageUser = 65532

// inImage lists the files of a package that a container image has, too.
var inImage = []string{
	"/usr/bin/listd", "/usr/bin/rebalancer", "/etc/evenkeel/evenkeel.yaml", "/usr/share/doc/evenkeel/copyright",
}

// entry is a file of a container image. An entry whose name ends with a slash is a directory.
type entry struct {
	name  string
	mode  fs.FileMode
	owner int
	text  []byte
}

// imageRoot returns the root of a container image as a tar file: the programs, their settings, and the user as whom
// they run. contents are the files of a package.
func (r release) imageRoot(contents files.Contents) ([]byte, error) {
	all := []entry{
		{"etc/", 0o755, 0, nil}, {"etc/evenkeel/", 0o755, 0, nil},
		{"etc/group", 0o644, 0, []byte("root:x:0:\nevenkeel:x:65532:\n")},
		{"etc/passwd", 0o644, 0, []byte("root:x:0:0:root:/:/sbin/nologin\n" +
			"evenkeel:x:65532:65532:evenkeel:/var/lib/evenkeel:/sbin/nologin\n")},
		{"tmp/", 0o1777, 0, nil},
		{"usr/", 0o755, 0, nil}, {"usr/bin/", 0o755, 0, nil}, {"usr/share/", 0o755, 0, nil},
		{"usr/share/doc/", 0o755, 0, nil}, {"usr/share/doc/evenkeel/", 0o755, 0, nil},
		{"var/", 0o755, 0, nil}, {"var/lib/", 0o755, 0, nil}, {"var/lib/evenkeel/", 0o700, imageUser, nil},
	}
	for _, c := range contents {
		if !slices.Contains(inImage, c.Destination) {
			continue
		}
		text, err := os.ReadFile(c.Source)
		if err != nil {
			return nil, err
		}
		owner := 0
		if strings.HasPrefix(c.Destination, "/etc/") {
			owner = imageUser
		}
		all = append(all, entry{strings.TrimPrefix(c.Destination, "/"), c.FileInfo.Mode.Perm(), owner, text})
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range all {
		h := &tar.Header{
			Name: e.name, Mode: int64(e.mode), Uid: e.owner, Gid: e.owner, Size: int64(len(e.text)), ModTime: r.made,
			Typeflag: tar.TypeReg, Format: tar.FormatPAX,
		}
		if strings.HasSuffix(e.name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.text); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

// checksums writes the file SHA256SUMS, with the checksums of all files in the directory dir, in the format of
// sha256sum -c.
func checksums(dir string) error {
	var out bytes.Buffer
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		fmt.Fprintf(&out, "%x  %s\n", sha256.Sum256(text), filepath.ToSlash(rel))
		return err
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "SHA256SUMS"), out.Bytes(), 0o644)
}
