package s3tour

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// howToInstall is the end of the error for a client program that is not installed.
const howToInstall = "scripts/install-tools installs it"

// commands is a client that runs a program, with a command line for each method of Client. In the command lines, the
// words BUCKET, PREFIX, DIR, URL, HOST and PAGE stand for the values of a call.
type commands struct {
	p Place
	// first are the words before each command, and more are the words after it.
	first, more, env                            []string
	create, up, keys, folders, down, empty, end string
	// key and folder match names in a line of the program's output.
	key, folder *regexp.Regexp
}

func (c commands) run(ctx context.Context, command, bucket, prefix, dir string) (string, error) {
	_, host, _ := strings.Cut(c.p.URL, "://")
	replace := strings.NewReplacer("BUCKET", bucket, "PREFIX", prefix, "DIR", dir, "URL", c.p.URL, "HOST", host, "PAGE",
		strconv.Itoa(page))
	words := slices.Clone(c.first)
	for _, w := range append(strings.Fields(command), c.more...) {
		words = append(words, replace.Replace(w))
	}
	program, err := exec.LookPath(words[0])
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, howToInstall)
	}
	cmd := exec.CommandContext(ctx, program, words[1:]...)
	cmd.Env = append(os.Environ(), "AWS_ACCESS_KEY_ID="+c.p.KeyID, "AWS_SECRET_ACCESS_KEY="+c.p.Secret,
		"AWS_DEFAULT_REGION="+c.p.region(),
		"AWS_RETRY_MODE=standard", "AWS_MAX_ATTEMPTS="+strconv.Itoa(c.p.attempts()),
		"AWS_CA_BUNDLE=", "AWS_EC2_METADATA_DISABLED=true", "AWS_CONFIG_FILE=/dev/null",
		"AWS_SHARED_CREDENTIALS_FILE=/dev/null", "AWS_PAGER=",
		"NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1", "LC_ALL=C.UTF-8")
	for _, e := range c.env {
		cmd.Env = append(cmd.Env, replace.Replace(e))
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%q: %w: %s", words[len(c.first):], err, out)
	}
	return string(out), nil
}

// names returns the names that the pattern find matches in the lines of a program's output, without the prefix.
func names(out string, find *regexp.Regexp, prefix string) (found []string) {
	for line := range strings.Lines(out) {
		if m := find.FindStringSubmatch(strings.TrimRight(line, "\n")); m != nil {
			found = append(found, strings.TrimPrefix(m[1], prefix))
		}
	}
	return found
}

func (c commands) Create(ctx context.Context, bucket string) error {
	_, err := c.run(ctx, c.create, bucket, "", "")
	return err
}

func (c commands) Up(ctx context.Context, dir, bucket, prefix string) error {
	_, err := c.run(ctx, c.up, bucket, prefix, dir)
	return err
}

// Keys returns the keys of a bucket that begin with prefix, sorted, since some programs print them folder by folder.
func (c commands) Keys(ctx context.Context, bucket, prefix string) ([]string, error) {
	out, err := c.run(ctx, c.keys, bucket, prefix, "")
	return slices.Sorted(slices.Values(names(out, c.key, prefix))), err
}

func (c commands) Folders(ctx context.Context, bucket, prefix string) ([]string, error) {
	out, err := c.run(ctx, c.folders, bucket, prefix, "")
	return slices.Sorted(slices.Values(names(out, c.folder, prefix))), err
}

func (c commands) Down(ctx context.Context, bucket, prefix, dir string) error {
	_, err := c.run(ctx, c.down, bucket, prefix, dir)
	return err
}

func (c commands) Empty(ctx context.Context, bucket string) error {
	_, err := c.run(ctx, c.empty, bucket, "", "")
	return err
}

func (c commands) Remove(ctx context.Context, bucket string) error {
	_, err := c.run(ctx, c.end, bucket, "", "")
	return err
}

// AWSCLI returns a client that runs the program aws, as Debian packages it.
func AWSCLI(p Place) Client {
	const s3 = "aws --endpoint-url URL s3 "
	return commands{
		p: p, create: s3 + "mb s3://BUCKET", up: s3 + "sync --only-show-errors --delete DIR s3://BUCKET/PREFIX",
		keys: s3 + "ls --recursive --page-size PAGE s3://BUCKET", key: regexp.MustCompile(`^\S+ \S+ +\d+ (.*)$`),
		folders: s3 + "ls s3://BUCKET/PREFIX", folder: regexp.MustCompile(`^ +PRE (.*)$`),
		down:  s3 + "sync --only-show-errors s3://BUCKET/PREFIX DIR",
		empty: s3 + "rm --recursive --only-show-errors s3://BUCKET", end: s3 + "rb s3://BUCKET",
	}
}

// Rclone returns a client that runs the program rclone.
func Rclone(p Place) Client {
	retries := "1"
	if p.Patient {
		retries = "10"
	}
	return commands{
		p: p, env: []string{
			"RCLONE_CONFIG=/dev/null", "RCLONE_CONFIG_S_TYPE=s3", "RCLONE_CONFIG_S_PROVIDER=Other",
			"RCLONE_CONFIG_S_ENDPOINT=URL",
			"RCLONE_CONFIG_S_ACCESS_KEY_ID=" + p.KeyID, "RCLONE_CONFIG_S_SECRET_ACCESS_KEY=" + p.Secret,
			"RCLONE_CONFIG_S_REGION=" + p.region(),
			"RCLONE_RETRIES=" + retries, "RCLONE_LOW_LEVEL_RETRIES=" + retries, "RCLONE_S3_LIST_CHUNK=PAGE",
			"RCLONE_S3_UPLOAD_CUTOFF=5Mi",
		},
		create: "rclone mkdir s:BUCKET", up: "rclone sync DIR s:BUCKET/PREFIX",
		keys: "rclone lsf -R --files-only s:BUCKET/PREFIX", key: regexp.MustCompile(`^(.+)$`),
		folders: "rclone lsf --dirs-only s:BUCKET/PREFIX", folder: regexp.MustCompile(`^(.+)$`),
		down: "rclone sync s:BUCKET/PREFIX DIR", empty: "rclone delete s:BUCKET", end: "rclone rmdir s:BUCKET",
	}
}

// S3cmd returns a client that runs the program s3cmd.
func S3cmd(p Place) Client {
	return commands{
		p: p, more: []string{"--access_key=" + p.KeyID, "--secret_key=" + p.Secret, "--host=HOST", "--host-bucket=HOST",
			"--no-ssl", "--config=/dev/null", "--no-progress", "--region=" + p.region()},
		create: "s3cmd mb s3://BUCKET", up: "s3cmd sync --delete-removed DIR/ s3://BUCKET/PREFIX",
		keys: "s3cmd ls -r s3://BUCKET/PREFIX", key: regexp.MustCompile(`s3://[^/]*/(.*)$`),
		folders: "s3cmd ls s3://BUCKET/PREFIX", folder: regexp.MustCompile(`DIR +s3://[^/]*/(.*)$`),
		down: "s3cmd sync s3://BUCKET/PREFIX DIR/", empty: "s3cmd del --recursive --force s3://BUCKET",
		end: "s3cmd rb s3://BUCKET",
	}
}

//go:embed boto.py
var botoScript string

// Boto returns a client that runs a program in Python, which uses the SDK boto3.
func Boto(p Place) (Client, error) {
	for _, python := range []string{"/usr/bin/python3", "python3"} {
		if exec.Command(python, "-c", "import boto3").Run() != nil {
			continue
		}
		all := regexp.MustCompile(`^(.+)$`)
		return commands{
			p: p, first: []string{python, "-c", botoScript, p.URL, strconv.Itoa(page)},
			create: "create BUCKET", up: "up BUCKET PREFIX DIR", keys: "keys BUCKET PREFIX", key: all,
			folders: "folders BUCKET PREFIX", folder: all,
			down: "down BUCKET PREFIX DIR", empty: "empty BUCKET", end: "remove BUCKET",
		}, nil
	}
	return nil, fmt.Errorf("there is no Python with boto3: %s", howToInstall)
}
