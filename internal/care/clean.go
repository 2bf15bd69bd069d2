package care

import (
	"context"
	"time"

	"github.com/evenkeel/evenkeel/store"
)

// Cleaner deletes from one bucket the versions and bodies that no reader can see any more. It also deletes what the
// bucket's Lifecycle rules tell it to delete. Any number of Cleaners may run at the same time, in any processes. The
// rows of the bucket say since when a version is deleted, so a Cleaner can continue where another Cleaner has stopped.
//
// A Cleaner works on the bucket that has the name at the Cleaner's first step, and never on a later bucket with this
// name. At each step it follows the bucket's present settings. Package objects implements and describes it.
type Cleaner interface {
	// Pass looks once at all uploads and all versions of the bucket, and deletes what is due to be deleted. It returns
	// the counts of what was found and done. A failed deletion is counted in Cleaned.Failed, and is tried again by the
	// next pass. Pass itself fails only if rows can't be listed.
	Pass(ctx context.Context) (Cleaned, error)
	// PassFrom continues an earlier pass over the bucket that has stopped: from is the Cleaned.Next of that pass.
	PassFrom(ctx context.Context, from string) (Cleaned, error)
	// PassUploads looks once at all multipart uploads of the bucket, and does what is due for each.
	PassUploads(ctx context.Context) (Cleaned, error)
	// PassOver cleans only the objects with the given keys, which ascend, as a pass over the whole bucket would.
	PassOver(ctx context.Context, keys []string) (Cleaned, error)
	// Condemn deletes a useless blob that an audit has found: the finding f is an Orphan or an Unlisted part.
	Condemn(ctx context.Context, f Finding) error
}

// CleanOptions are the options of a Cleaner, which deletes versions and bodies that no reader of a bucket can see any
// more. A zero field means its default.
type CleanOptions struct {
	// Grace is how long the body of a deleted version stays in the store of blobs. So readers who began before the
	// deletion can finish. It must be longer than any read may take, and longer than objects.Options.PutTimeout.
	// Default 24 hours.
	Grace time.Duration
	// Now shortens Grace to two minutes (SoonGrace), in order to free space fast. The two minutes count from the
	// acknowledgement of the deletion. Now applies only to versions that are older than any put may take. Readers who
	// began before the deletion may find their body cut off.
	Now bool
	// Settled is the age from which on late writes can't arrive any more. Default 11 days, which is more than
	// Cassandra's default of gc_grace_seconds (10 days). A cleaner deletes at this age
	//
	//   - a delete marker that hides nothing, in a bucket that never had versions;
	//   - a body without a row, if Cleaner.Condemn is called for it.
	Settled time.Duration
	// Pacer, if not nil, limits how many rows per second the cleaner reads. After each read the cleaner calls Take with
	// the number of rows that it has read. Take waits until the cleaner may go on. If ctx ends, Take returns the cause.
	Pacer interface {
		Take(ctx context.Context, rows int) error
	}
	// Before, if not nil, is called before each step of the cleaner, e.g. before the deletion of a version. If Before
	// returns false, the cleaner leaves the step out.
	Before func(Deed) bool
	// Report, if not nil, is called after each page of rows, with the counts of the pass so far.
	Report func(Cleaned)
	// Later, if not nil, is called with the key of each object in which something may be due for deletion later. The
	// parameter after is the time until then.
	Later func(key []byte, after time.Duration)
}

// Deed is one step that a cleaner is about to take with a version or an upload, for example the deletion of a version.
type Deed struct {
	// Do is the name of the kind of step, e.g. "expire" or "finish". Possible are "supersede", "prove", "finish",
	// "unmark", "expire", "lapse", "settle", "condemn" and "free".
	Do  string
	Key []byte
	// Version is the ID of the version as text or, for a step with an upload, of the version that the upload becomes.
	Version string
	// Why is the reason for the step, as a sentence for people.
	Why string
}

// Cleaned is the result of a cleaner's pass over a bucket: the numbers of versions, rows and uploads that the pass has
// found, deleted or failed to delete. The fields count versions if no other unit is named.
type Cleaned struct {
	// Rows is the number of rows that the pass has read, and Bytes the length of the bodies of Finished versions. Seen
	// versions are visible to readers. Each of the other fields counts versions to which one kind of step was done,
	// e.g. Expired the versions that a lifecycle rule hides.
	Rows, Bytes                                                   int64
	Seen, Superseded, Proven, Finished, Unmarked, Expired, Lapsed int64
	// Waiting is the number of deleted versions that keep their blobs until CleanOptions.Grace is over.
	Waiting int64
	// Ended is the number of uploads that are known to have ended. Freed is the number of uploads whose rows and
	// useless parts were all removed. The version that an upload has become stays.
	Ended, Freed int64
	// Overdue is the number of steps in Superseded and Finished that were due for more than six hours: the hint that
	// should have led a cleaner to the object was lost.
	Overdue int64
	// Remembered is the number of deleted versions and ended uploads that keep their blobs until CleanOptions.Grace is
	// over. Their rows tell when that time began, so another cleaner can go on.
	Remembered int64
	// Next is the position of the last object that the pass has looked at. PassFrom continues from this position. Next
	// is empty if the pass has looked at no object.
	Next string
	// Damaged is the number of rows that can't be read. The cleaner does not delete them.
	Damaged int64
	// Failed is the number of steps that failed, which the next pass tries again. FirstFailure is the error of the
	// first failed step, and Reasons counts all failed steps by the kind of their errors.
	Failed       int64
	FirstFailure error
	Reasons      map[store.Kind]int64
}

// Fail counts a failed step, whose error is err.
func (d *Cleaned) Fail(err error) {
	if d.Failed++; d.FirstFailure == nil {
		d.FirstFailure, d.Reasons = err, map[store.Kind]int64{}
	}
	d.Reasons[store.KindOf(err)]++
}

// Add adds the counts of another pass, more, to d. The other pass has looked at other objects of the same bucket.
func (d *Cleaned) Add(more *Cleaned) {
	for _, n := range []struct{ to, more *int64 }{
		{&d.Rows, &more.Rows}, {&d.Bytes, &more.Bytes}, {&d.Seen, &more.Seen}, {&d.Superseded, &more.Superseded},
		{&d.Proven, &more.Proven}, {&d.Finished, &more.Finished}, {&d.Unmarked, &more.Unmarked},
		{&d.Expired, &more.Expired}, {&d.Lapsed, &more.Lapsed}, {&d.Waiting, &more.Waiting}, {&d.Ended, &more.Ended},
		{&d.Freed, &more.Freed}, {&d.Overdue, &more.Overdue}, {&d.Remembered, &more.Remembered},
		{&d.Damaged, &more.Damaged}, {&d.Failed, &more.Failed},
	} {
		*n.to += *n.more
	}
	if d.FirstFailure == nil {
		d.FirstFailure, d.Reasons = more.FirstFailure, map[store.Kind]int64{}
	}
	for kind, n := range more.Reasons {
		d.Reasons[kind] += n
	}
}
