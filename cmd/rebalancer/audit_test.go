package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/bodies"
	"github.com/evenkeel/evenkeel/internal/adminapi"
	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/cleaning"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/leader"
	"github.com/evenkeel/evenkeel/internal/timestamps"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/objects/fileblobs"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

// withObjects does something to the objects of a data directory, as a listd that has ended would have, so
// long ago.
func withObjects(t *testing.T, data string, ago time.Duration, do func(o *objects.Objects, c *listing.Client)) {
	t.Helper()
	s, err := pebblestore.Open(data, pebblestore.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	c, err := listing.New(s, listing.Options{
		Timestamps: timestamps.New(func() time.Time { return time.Now().Add(-ago) }),
	})
	require.NoError(t, err)
	defer mapclient.Of(c).Close()
	blobs, err := fileblobs.Open(filepath.Join(data, "bodies"))
	require.NoError(t, err)
	defer func() { require.NoError(t, blobs.Close()) }()
	o, err := objects.New(c, blobs, objects.Options{})
	require.NoError(t, err)
	do(o, c)
}

// files returns the files of bodies whose content is that.
func files(t *testing.T, data, content string) (found []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(filepath.Join(data, "bodies"), func(name string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if b, rerr := os.ReadFile(name); rerr == nil && string(b) == content {
				found = append(found, name)
			}
		}
		return err
	}))
	return found
}

func TestAudit(t *testing.T) {
	data := t.TempDir()
	body, orphan := strings.Repeat("body", 2000), strings.Repeat("orphan", 2000)
	put := func(o *objects.Objects, bucket, key, body string) {
		_, err := o.Bucket(bucket, objects.Never).
			Put(t.Context(), []byte(key), strings.NewReader(body), objects.Meta{Size: -1})
		require.NoError(t, err)
	}
	const days = 12 * 24 * time.Hour
	withObjects(t, data, days, func(o *objects.Objects, c *listing.Client) {
		require.NoError(t, c.CreateBucket(t.Context(), "plain"))
		for _, name := range []string{"photos", "videos"} {
			require.NoError(t, o.CreateBucket(t.Context(), name))
			for _, key := range []string{"a", "b", "c"} {
				put(o, name, key, name+key+body)
			}
		}
	})
	audit := func(want int, args ...string) (out, errs string) {
		t.Helper()
		code, out, errs := ran(t, 0, "", append([]string{"audit", "--data", data, "--progress", "none"}, args...)...)
		require.Equal(t, want, code, "%v: %s%s", args, out, errs)
		return out, errs
	}
	out, _ := audit(0)
	require.Contains(t, out, "2 buckets, 6 rows, 6 bodies")
	require.True(t, strings.HasSuffix(out, "\nclean\n"), out)

	// Servers mark bodies as theirs.
	require.NoError(t, os.WriteFile(filepath.Join(data, "bodies", "_owner"), []byte("0123456789abcdef\n"), 0o600))
	_, errs := audit(daemon.ExitRefused)
	require.Contains(t, errs, "the bodies belong to another store (0123456789abcdef; the rows have no id")
	rows, err := pebblestore.Open(data, pebblestore.Options{})
	require.NoError(t, err)
	_, err = mapclient.Identify(t.Context(), rows)
	require.NoError(t, err)
	require.NoError(t, rows.Close())
	_, errs = audit(daemon.ExitRefused)
	require.Contains(t, errs, "the bodies belong to another store (0123456789abcdef; the rows are those of ")
	require.NoError(t, os.Remove(filepath.Join(data, "bodies", "_owner")))

	// An orphan is the body of a put whose row was never written: here it is in another directory.
	other := t.TempDir()
	withObjects(t, other, days, func(o *objects.Objects, _ *listing.Client) {
		require.NoError(t, o.CreateBucket(t.Context(), "photos"))
		put(o, "photos", "bb", orphan)
	})
	require.NoError(t, os.Remove(filepath.Join(other, "bodies", ".unfinished"))) // CopyFS replaces no file
	require.NoError(t, os.CopyFS(filepath.Join(data, "bodies"), os.DirFS(filepath.Join(other, "bodies"))))
	out, _ = audit(daemon.ExitFailed)
	require.Contains(t, out, "orphan: bucket photos, key bb, version ")
	require.Contains(t, out, "; 1 problems, 0 condemned")
	again, _ := audit(daemon.ExitFailed, "photos", "--rate", "1000000")
	require.Contains(t, again, "1 buckets, 3 rows, 4 bodies (0 of uploads, 0 of deleted", "a dry run changes nothing")
	_, errs = audit(daemon.ExitUsage, "--condemn")
	require.Contains(t, errs, "name the bucket")

	// Nothing is condemned where a body is lost.
	lost := files(t, data, "photosb"+body)
	require.Len(t, lost, 1)
	require.NoError(t, os.Rename(lost[0], lost[0]+"-elsewhere"))
	out, errs = audit(daemon.ExitRefused, "photos", "--condemn")
	require.Contains(t, out, "lost body: bucket photos, key b, version ")
	require.Contains(t, out, "is not there")
	require.Contains(t, out, "stranger: bucket photos, body ")
	require.Contains(t, errs, "nothing is condemned")
	out, _ = audit(daemon.ExitFailed, "--json")
	var faults []string
	var sum struct {
		Complete bool
		Summary  cleaning.Compared
	}
	for line := range strings.Lines(out) {
		var f struct {
			Fault, Bucket, Key, Blob string
			Size, Want               int64
		}
		require.NoError(t, json.Unmarshal([]byte(line), &f))
		if f.Fault == "" {
			require.NoError(t, json.Unmarshal([]byte(line), &sum))
			continue
		}
		faults = append(faults, f.Fault)
		require.Equal(t, "photos", f.Bucket)
	}
	require.ElementsMatch(t, []string{"lost body", "stranger", "orphan"}, faults)
	require.True(t, sum.Complete)
	require.Equal(t, cleaning.Compared{Buckets: 2, Rows: 6, Blobs: 7, Problems: 3}, sum.Summary)
	require.NoError(t, os.Rename(lost[0]+"-elsewhere", lost[0]))

	// What is condemned is deleted, and nothing else.
	out, _ = audit(0, "photos", "--condemn")
	require.Contains(t, out, "1 problems, 1 condemned")
	out, _ = audit(0)
	require.Contains(t, out, "0 of deleted versions")
	require.Contains(t, out, "6 bodies")
	withObjects(t, data, 0, func(o *objects.Objects, _ *listing.Client) {
		page, err := o.Bucket("photos", objects.Never).List(t.Context(), objects.Query{})
		require.NoError(t, err)
		require.Len(t, page.Items, 3)
	})

	for args, says := range map[string]string{
		"none": "none", "plain": "plain", "--continue rubbish": "no token", "--rate -1": "--rate",
		"--bodies s3://x": "--bodies", "--bodies file:///no/such/place": "no such file",
		"--cassandra 10.0.0.1": "one of them", "photos --continue videos:00": "videos",
	} {
		code, _, errs := ran(t, 0, "", append([]string{"audit", "--data", data}, strings.Fields(args)...)...)
		require.NotZero(t, code, args)
		require.NotEqual(t, daemon.ExitFailed, code, args)
		require.Contains(t, errs, says, args)
	}
}

// Bodies below the name of a bucket that was deleted are found, and deleted where that bucket is named.
func TestAuditOfADeletedBucket(t *testing.T) {
	data, body := t.TempDir(), strings.Repeat("body", 2000)
	var file string
	withObjects(t, data, 12*24*time.Hour, func(o *objects.Objects, _ *listing.Client) {
		require.NoError(t, o.CreateBucket(t.Context(), "photos"))
		b := o.Bucket("photos", objects.Never)
		_, err := b.Put(t.Context(), []byte("a"), strings.NewReader(body), objects.Meta{Size: -1})
		require.NoError(t, err)
		file = files(t, data, body)[0]
		_, err = b.Delete(t.Context(), []byte("a"))
		require.NoError(t, err)
		require.NoError(t, o.DeleteBucket(t.Context(), "photos"))
		require.NoFileExists(t, file)
	})
	audit := func(want int, args ...string) string {
		t.Helper()
		code, out, errs := ran(t, 0, "", append([]string{"audit", "--data", data, "--progress", "none"}, args...)...)
		require.Equal(t, want, code, "%v: %s%s", args, out, errs)
		return out
	}
	require.Contains(t, audit(0), "clean")
	audit(daemon.ExitRefused, "photos")
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
	require.NoError(t, os.WriteFile(file, []byte(body), 0o600))
	for _, args := range [][]string{nil, {"photos"}, {"photos", "--condemn"}} { // it is young, and there is no mark
		out := audit(daemon.ExitFailed, args...)
		require.Contains(t, out, "orphan: bucket photos, key a, version ")
		require.Contains(t, out, "0 buckets, 0 rows, 1 bodies")
		require.FileExists(t, file)
	}
	long := time.Now().Add(-12 * 24 * time.Hour)
	require.NoError(t, os.Chtimes(file, long, long))
	audit(daemon.ExitFailed, "photos", "--condemn")
	owner := filepath.Join(data, "bodies", "_owner")
	require.NoError(t, os.WriteFile(owner, []byte("0123456789abcdef\n"), 0o600))
	audit(daemon.ExitRefused, "photos", "--condemn") // rows that have marked no place have no id
	rows, err := pebblestore.Open(data, pebblestore.Options{})
	require.NoError(t, err)
	id, err := mapclient.Identify(t.Context(), rows)
	require.NoError(t, err)
	require.NoError(t, rows.Close())
	audit(daemon.ExitRefused, "photos", "--condemn") // they have another one
	require.FileExists(t, file)
	require.NoError(t, os.WriteFile(owner, []byte(id.String()+"\n"), 0o600))
	require.Contains(t, audit(0, "photos", "--condemn"), "1 problems, 1 condemned")
	require.NoFileExists(t, file)
	require.Contains(t, audit(0), "clean")
}

func TestCleanShowsItsSteps(t *testing.T) {
	data := t.TempDir()
	withObjects(t, data, time.Hour, func(o *objects.Objects, c *listing.Client) {
		require.NoError(t, c.CreateBucket(t.Context(), "plain"))
		require.NoError(t, o.CreateBucket(t.Context(), "photos"))
		for range 3 {
			_, err := o.Bucket("photos", objects.Never).
				Put(t.Context(), []byte("a"), strings.NewReader("body"), objects.Meta{Size: 4})
			require.NoError(t, err)
		}
	})
	for range 2 { // nothing changes
		code, out, errs := ran(t, 0, "", "clean", "--dry-run", "--data", data)
		require.Zero(t, code, errs)
		lines := strings.Split(out, "\n")
		require.Len(t, lines, 4, out)
		for _, line := range lines[:2] {
			require.Regexp(t, "^supersede bucket photos, key a, version [0-9a-f]{28}: a newer version has taken its place$", line)
		}
		require.Equal(t, "supersede: 2", lines[2])
	}
	code, out, _ := ran(t, 0, "", "clean", "photos", "--dry-run", "--data", data, "--json")
	require.Zero(t, code)
	require.Contains(t, out, `{"steps":{"supersede":2},"version":1}`)
	for args, says := range map[string]string{
		"": "--dry-run or --now", "--dry-run none": "none", "--dry-run plain": "plain", "--now": "name the bucket",
		"--now --dry-run photos": "one of them", "--now none": "none", "--now plain": "plain",
	} {
		code, _, errs := ran(t, 0, "", append([]string{"clean", "--data", data}, strings.Fields(args)...)...)
		require.NotZero(t, code, args)
		require.Contains(t, errs, says, args)
	}
}

func TestCleanMakesRoom(t *testing.T) {
	data, body := t.TempDir(), strings.Repeat("body", 2000)
	withObjects(t, data, 2*time.Hour, func(o *objects.Objects, _ *listing.Client) {
		require.NoError(t, o.CreateBucket(t.Context(), "photos"))
		b := o.Bucket("photos", objects.Never)
		for range 3 {
			_, err := b.Put(t.Context(), []byte("a"), strings.NewReader(body), objects.Meta{Size: -1})
			require.NoError(t, err)
		}
		c, err := care.OfBucket(b).Cleaner(care.CleanOptions{})
		require.NoError(t, err)
		_, err = c.Pass(t.Context())
		require.NoError(t, err)
	})
	require.Len(t, files(t, data, body), 3)
	code, out, errs := ran(t, 0, "", "clean", "photos", "--now", "--data", data)
	require.Zero(t, code, errs)
	require.Equal(t, "2 versions deleted with 16,000 bytes; 0 wait\n", out)
	require.Len(t, files(t, data, body), 1)
}

func TestStatusTellsOfTheCleaner(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	last := &cleaning.Round{Began: now.Add(-time.Hour), Ended: now.Add(-time.Minute), Buckets: 2, Rows: 30_000, Burned: 7, Deleted: 5,
		Bytes: 1_000_000, Waiting: 9}
	failed := *last
	failed.Failed, failed.Error = 3, "no space"
	for want, s := range map[string]*cleaning.Status{
		"":                                   nil,
		"Nobody cleans buckets of objects\n": {},
		"Another process cleans buckets of objects: b, at http://b\n":                        {Leader: &leader.Holder{Name: "b", Admin: "http://b"}},
		"This process cleans buckets of objects, begun 1h0m0s ago; no round has ended yet\n": {Leading: true, Since: last.Began},
		"This process cleans buckets of objects: last round begun 1h0m0s ago of 2 buckets: 30,000 rows, " +
			"7 versions burned, 5 deleted with 1,000,000 bytes, 9 wait for the grace\n": {Leading: true, Last: last},
		"Buckets of objects are not cleaned while moves are paused\n" +
			"This process cleans buckets of objects: present round begun 1h0m0s ago of 2 buckets: 30,000 rows, " +
			"7 versions burned, 5 deleted with 1,000,000 bytes, 9 wait for the grace\n  3 steps failed: no space\n": {
			Leading: true, Paused: true, Now: &failed,
		},
		"This process cleans buckets of objects, begun 1h0m0s ago; no round has ended yet\n" +
			"Bodies of objects: last audit begun 1h0m0s ago, ended 1m0s ago, of 2 buckets, 30,000 rows, 0 bodies (0 of " +
			"uploads, 0 of deleted versions, 0 of puts under way); 3 problems, 0 condemned, 0 unjudged\n" +
			"  found: lost body: 1, orphan: 2\n  bucket photos: lost body: 1\n": {
			Leading: true, Since: last.Began, LastAudit: &cleaning.Audit{Began: last.Began, Ended: last.Ended,
				Compared: cleaning.Compared{Buckets: 2, Rows: 30_000, Problems: 3},
				Faults:   cleaning.Counts{care.Orphan: 2, care.LostBody: 1},
				Found:    []cleaning.Found{{Bucket: "photos", Faults: cleaning.Counts{care.LostBody: 1}}},
			},
		},
		"This process cleans buckets of objects, begun 1h0m0s ago; no round has ended yet\n" +
			"Bodies of objects: present audit begun 1h0m0s ago, of 0 buckets, 0 rows, 0 bodies (0 of uploads, 0 of deleted " +
			"versions, 0 of puts under way); 0 problems, 0 condemned, 0 unjudged\n" +
			"  found: none\n  interrupted, and goes on later: away\n": {
			Leading: true, Since: last.Began, Audit: &cleaning.Audit{Began: last.Began, Error: "away"},
		},
		"This process cleans buckets of objects, begun 1h0m0s ago; no round has ended yet\n" +
			"Bodies of objects: present scrub begun 1h0m0s ago, of 0 buckets, 0 rows, 0 bodies (0 of uploads, 0 of deleted " +
			"versions, 0 of puts under way); 0 problems, 0 condemned, 0 unjudged\n  found: damaged body: 1\n": {
			Leading: true, Since: last.Began,
			Scrub: &cleaning.Audit{Began: last.Began, Faults: cleaning.Counts{care.DamagedBody: 1}},
		},
	} {
		var out bytes.Buffer
		printCleaning(&failing{w: &out}, s, now)
		require.Equal(t, want, out.String())
	}
	var out bytes.Buffer
	printStatus(&failing{w: &out}, &adminapi.Status{Cleaning: &cleaning.Status{}, CleaningShards: []adminapi.Share{
		{Name: "a", Shards: []int{0, 2}}, {Name: "b", Here: true, Shards: []int{1}}, {Shards: []int{3}},
	}}, now)
	require.Contains(t, out.String(), "Each cleans the buckets of objects of some shards:\n  a: 0 2\n"+
		"  b (this process): 1\n  nobody: 3\nNobody cleans buckets of objects\n")
	out.Reset()
	printProcesses(&failing{w: &out}, &adminapi.Cluster{Terms: &adminapi.Terms{}, Processes: []adminapi.Peer{
		{Name: "a", Leads: true, Shards: []int{0, 1}, CleaningShards: []int{2}}, {Name: "b", CleaningShards: []int{0, 1, 3}},
		{Name: "c", CleaningShards: []int{4}, Silent: true, Seen: now.Add(-time.Hour)},
	}}, now)
	require.Regexp(t, `a +.*leads shards 0 1, cleans shards 2\n`, out.String())
	require.Regexp(t, `b +.*  cleans shards 0 1 3\n`, out.String())
	require.Regexp(t, `c +.*silent since 1h0m0s ago\n`, out.String())
}

// A place without the mark that servers have made is not the place of the servers: all bodies would seem to be lost.
func TestAuditsRefuseAPlaceWithoutItsMark(t *testing.T) {
	ctx, data := t.Context(), t.TempDir()
	withObjects(t, data, time.Hour, func(o *objects.Objects, _ *listing.Client) {
		require.NoError(t, o.CreateBucket(ctx, "photos"))
	})
	audit := func(want int) string {
		code, out, errs := ran(t, 0, "", "audit", "--data", data, "--progress", "none")
		require.Equal(t, want, code, "%s%s", out, errs)
		return errs
	}
	audit(0)
	rows, err := pebblestore.Open(data, pebblestore.Options{})
	require.NoError(t, err)
	require.NoError(t, bodies.Note(ctx, rows))
	require.NoError(t, rows.Close())
	require.Contains(t, audit(daemon.ExitRefused), "no mark _owner")
}
