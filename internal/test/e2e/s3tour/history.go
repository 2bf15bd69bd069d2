package s3tour

import (
	"bytes"
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awscredentials "github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
)

// wantHistory is the result of History for a server that behaves as S3 defines. The program boto.py makes the same
// requests, with the same result.
const wantHistory = `replaced: two! one
get : two
get one: one
restored by a copy: restored! two one
get : one
deleted: restored two one marker!
get : NoSuchKey
get two: two
get marker: MethodNotAllowed
restored by deleting the marker: restored! two one
get : one
restored by deleting the newest: two! one
get : two
suspended: null! two one
get null: null
open: b/parts
parts: 1 3
completed: true
from 0 to 15728640: true
from 5242878 to 10485762: true
from 10485760 to 10485761: true
parts: NoSuchUpload
`

// partBytes is the smallest size of a part of an upload, in bytes, except for the last part.
const partBytes = 5 << 20

// parts returns the three parts of an upload, and the ETag that the complete object must have.
func parts() (all [3][]byte, etag string) {
	sums := md5.New()
	for i := range all {
		all[i] = bytes.Repeat([]byte{byte('a' + i)}, partBytes)
		sum := md5.Sum(all[i])
		_, _ = sums.Write(sum[:])
	}
	return all, fmt.Sprintf("%x-3", sums.Sum(nil))
}

// history uses aws-sdk-go-v2 for what people do with versions of objects, and with uploads in parts that were
// interrupted. It writes down the answers of the server as text.
type history struct {
	c      *s3.Client
	bucket *string
	// bodies has the names of versions, by the versions' IDs.
	bodies map[string]string
	said   strings.Builder
}

// History makes the requests of the type history in a new bucket, and returns the answers as text.
func History(ctx context.Context, p Place, bucket string) (string, error) {
	h := &history{bucket: &bucket, bodies: map[string]string{"null": "null"}, c: s3.New(s3.Options{
		BaseEndpoint: aws.String(p.URL), Region: p.region(), UsePathStyle: true, RetryMaxAttempts: p.attempts(),
		Credentials: awscredentials.NewStaticCredentialsProvider(p.KeyID, p.Secret, ""),
	})}
	if _, err := h.c.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: h.bucket}); err != nil {
		return "", err
	}
	err := h.versions(ctx)
	if err == nil {
		err = h.uploads(ctx)
	}
	return h.said.String(), err
}

func (h *history) say(format string, args ...any) { fmt.Fprintf(&h.said, format, args...) }

// body returns the body of the version with the given name. It is too long to be kept in a row.
func body(name string) string { return strings.Repeat(name+" ", 5000) }

func (h *history) status(ctx context.Context, s types.BucketVersioningStatus) error {
	_, err := h.c.PutBucketVersioning(ctx, &s3.PutBucketVersioningInput{
		Bucket: h.bucket, VersioningConfiguration: &types.VersioningConfiguration{Status: s},
	})
	return err
}

var key = aws.String("a dir/k")

func (h *history) put(ctx context.Context, name string) error {
	out, err := h.c.PutObject(ctx, &s3.PutObjectInput{Bucket: h.bucket, Key: key, Body: strings.NewReader(body(name))})
	if err == nil && aws.ToString(out.VersionId) != "" {
		h.bodies[*out.VersionId] = name
	}
	return err
}

// list writes down which versions and delete markers the object has, the newest first, and which of them is the latest.
// after says what was done before.
func (h *history) list(ctx context.Context, after string) error {
	out, err := h.c.ListObjectVersions(ctx, &s3.ListObjectVersionsInput{Bucket: h.bucket, Prefix: key})
	if err != nil {
		return err
	}
	h.say("%s:", after)
	for _, v := range out.Versions {
		h.say(" %s%s", h.bodies[*v.VersionId], latest(v.IsLatest))
	}
	for _, m := range out.DeleteMarkers {
		h.say(" %s%s", h.bodies[*m.VersionId], latest(m.IsLatest))
	}
	h.say("\n")
	return nil
}

func latest(is *bool) string {
	if aws.ToBool(is) {
		return "!"
	}
	return ""
}

// get reads the version with the given name, or the latest version if the name is empty, and writes down which body it
// has.
func (h *history) get(ctx context.Context, name string) error {
	in := &s3.GetObjectInput{Bucket: h.bucket, Key: key}
	if name != "" {
		in.VersionId = h.id(name)
	}
	out, err := h.c.GetObject(ctx, in)
	var refused smithy.APIError
	if errors.As(err, &refused) {
		h.say("get %s: %s\n", name, refused.ErrorCode())
		return nil
	}
	if err != nil {
		return err
	}
	defer out.Body.Close()
	got, err := io.ReadAll(out.Body)
	word, _, _ := strings.Cut(string(got), " ")
	if string(got) != body(word) {
		word = "another"
	}
	h.say("get %s: %s\n", name, word)
	return err
}

// id returns the ID of the version with the given name.
func (h *history) id(name string) *string {
	for id, n := range h.bodies {
		if n == name {
			return aws.String(id)
		}
	}
	return aws.String("none")
}

// restore makes an old version the latest one, by a copy of it. name is the name of the old version.
func (h *history) restore(ctx context.Context, name string) error {
	out, err := h.c.CopyObject(ctx, &s3.CopyObjectInput{
		Bucket: h.bucket, Key: key,
		CopySource: aws.String(*h.bucket + "/" + strings.ReplaceAll(*key, " ", "%20") + "?versionId=" + *h.id(name)),
	})
	if err == nil {
		h.bodies[aws.ToString(out.VersionId)] = "restored"
	}
	return err
}

// remove deletes the version with the given name for good. If the name is empty, it hides the object by a delete
// marker.
func (h *history) remove(ctx context.Context, name string) error {
	in := &s3.DeleteObjectInput{Bucket: h.bucket, Key: key}
	if name != "" {
		in.VersionId = h.id(name)
	}
	out, err := h.c.DeleteObject(ctx, in)
	if err == nil && name == "" {
		h.bodies[aws.ToString(out.VersionId)] = "marker"
	}
	return err
}

// versions loses the content of an object in three ways, and gets it back each time: the object is replaced, hidden by
// a delete marker, or a version is deleted.
func (h *history) versions(ctx context.Context) error {
	return errors.Join(
		h.status(ctx, types.BucketVersioningStatusEnabled), h.put(ctx, "one"), h.put(ctx, "two"),
		h.list(ctx, "replaced"), h.get(ctx, ""), h.get(ctx, "one"),
		h.restore(ctx, "one"), h.list(ctx, "restored by a copy"), h.get(ctx, ""),
		h.remove(ctx, ""), h.list(ctx, "deleted"), h.get(ctx, ""), h.get(ctx, "two"), h.get(ctx, "marker"),
		h.remove(ctx, "marker"), h.list(ctx, "restored by deleting the marker"), h.get(ctx, ""),
		h.remove(ctx, "restored"), h.list(ctx, "restored by deleting the newest"), h.get(ctx, ""),
		h.status(ctx, types.BucketVersioningStatusSuspended), h.put(ctx, "null"), h.list(ctx, "suspended"),
		h.get(ctx, "null"),
	)
}

// uploads puts two of three parts of an upload, and then continues as a client that has forgotten everything: it asks
// the server which part is missing, puts that part, and completes the upload.
func (h *history) uploads(ctx context.Context) error {
	all, etag := parts()
	key := aws.String("b/parts")
	begun, err := h.c.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: h.bucket, Key: key})
	if err != nil {
		return err
	}
	part := func(id *string, n int32) error {
		_, err := h.c.UploadPart(ctx, &s3.UploadPartInput{
			Bucket: h.bucket, Key: key, UploadId: id, PartNumber: &n, Body: bytes.NewReader(all[n-1]),
		})
		return err
	}
	if err := errors.Join(part(begun.UploadId, 3), part(begun.UploadId, 1)); err != nil {
		return err
	}
	open, err := h.c.ListMultipartUploads(ctx, &s3.ListMultipartUploadsInput{Bucket: h.bucket})
	if err != nil {
		return err
	}
	for _, u := range open.Uploads {
		h.say("open: %s\n", *u.Key)
	}
	id := open.Uploads[0].UploadId
	if err := h.listParts(ctx, key, id); err != nil {
		return err
	}
	if err := part(id, 2); err != nil {
		return err
	}
	there, err := h.c.ListParts(ctx, &s3.ListPartsInput{Bucket: h.bucket, Key: key, UploadId: id})
	if err != nil {
		return err
	}
	var done types.CompletedMultipartUpload
	for _, p := range there.Parts {
		done.Parts = append(done.Parts, types.CompletedPart{PartNumber: p.PartNumber, ETag: p.ETag})
	}
	completed, err := h.c.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
		Bucket: h.bucket, Key: key, UploadId: id, MultipartUpload: &done,
	})
	if err != nil {
		return err
	}
	h.say("completed: %v\n", strings.Trim(aws.ToString(completed.ETag), `"`) == etag)
	whole := bytes.Join(all[:], nil)
	for _, r := range [][2]int{{0, len(whole)}, {partBytes - 2, 2*partBytes + 2}, {2 * partBytes, 2*partBytes + 1}} {
		out, err := h.c.GetObject(ctx, &s3.GetObjectInput{
			Bucket: h.bucket, Key: key, Range: aws.String(fmt.Sprintf("bytes=%d-%d", r[0], r[1]-1)),
		})
		if err != nil {
			return err
		}
		got, err := io.ReadAll(out.Body)
		_ = out.Body.Close()
		if err != nil {
			return err
		}
		h.say("from %d to %d: %v\n", r[0], r[1], bytes.Equal(got, whole[r[0]:r[1]]))
	}
	return h.listParts(ctx, key, id)
}

func (h *history) listParts(ctx context.Context, key, id *string) error {
	out, err := h.c.ListParts(ctx, &s3.ListPartsInput{Bucket: h.bucket, Key: key, UploadId: id})
	var refused smithy.APIError
	if errors.As(err, &refused) {
		h.say("parts: %s\n", refused.ErrorCode())
		return nil
	}
	if err != nil {
		return err
	}
	h.say("parts:")
	for _, p := range out.Parts {
		h.say(" %d", *p.PartNumber)
	}
	h.say("\n")
	return nil
}
