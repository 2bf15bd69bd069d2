// Package tidy decides what is to be done with the versions of one object (docs/objects.md, the
// rules). It is pure: versions go in, steps come out.
package tidy

import (
	"slices"
	"time"
)

// Rank is how far a version has come. It only grows: the row's timestamp is the version's stamp
// plus an offset by rank, so the highest rank wins, whatever the order of arrival.
type Rank byte

const (
	Live   Rank = 1
	Kept   Rank = 2 // live, and a cleaner relies on it
	Burned Rank = 3 // no more seen; its blob will be deleted
	Gone   Rank = 4 // the row is deleted; in no record
)

// Seen reports whether readers see a version of the rank.
func (r Rank) Seen() bool { return r == Live || r == Kept }

// Version is what there is to know of one version.
type Version struct {
	Rank         Rank // 0: there is only what stands beside it
	Marker, Null bool
	Tags, Note   bool          // stand beside it
	Age          time.Duration // since its stamp
	// Proven is how long ago its burning was acknowledged by every data centre, as far as this
	// cleaner knows; negative: it does not know.
	Proven time.Duration
}

// Rules are the times that cleaners wait.
type Rules struct {
	// Grace is longer than any read, and than any deadline, may take.
	Grace time.Duration
	// Settled is the age at which nothing older than a version can arrive any more; negative:
	// delete markers stay, as users see them.
	Settled time.Duration
	// Expire is the age at which what is seen as the object is hidden; 0: never.
	Expire time.Duration
	// Abandon is the age at which an open upload is ended; 0: never.
	Abandon time.Duration
}

// Do is a kind of step.
type Do byte

const (
	// Supersede: keep By and, if it has no note then, burn the version.
	Supersede Do = iota + 1
	// Prove: burn again what somebody has burned.
	Prove
	// Finish: delete the blob, then the row and what stands beside it.
	Finish
	// Unmark: remove a delete marker that hides nothing.
	Unmark
	// Expire: hide a version that is the newest, as a delete of the object would.
	Expire
	// Settle: end the upload, and keep the version that completed it, if it is seen.
	Settle
	// Condemn: note and, if there is no version then, burn the version of an upload.
	Condemn
	// Free: delete the parts that the version does not list, then the rows of the upload.
	Free
)

// String is the name of the step.
func (d Do) String() string {
	return [...]string{"none", "supersede", "prove", "finish", "unmark", "expire", "settle", "condemn", "free"}[d]
}

// Why says for people why the step is due.
func (d Do) Why() string {
	return [...]string{
		"nothing is due", "a newer version has taken its place", "it was deleted, perhaps not everywhere yet",
		"it was deleted, and the grace is over", "the delete marker hides nothing", "it is older than a rule allows",
		"the upload has ended, or is older than a rule allows", "the upload has ended without a version",
		"the upload has become a version, and the grace is over",
	}[d]
}

// Step is one thing to do; Version and By are places in the group.
type Step struct {
	Do          Do
	Version, By int
}

// Decide returns the steps that are due for a group, newest version first. They are independent of
// one another. more: the group has older versions than these; behind: newer ones.
func Decide(group []Version, behind, more bool, r Rules) (steps []Step) {
	if first := slices.IndexFunc(group, func(v Version) bool { return v.Rank.Seen() }); first >= 0 && !behind {
		if v := &group[first]; r.Expire > 0 && v.Age >= r.Expire && !v.Marker && !v.Note {
			steps = append(steps, Step{Do: Expire, Version: first})
		}
	}
	newest := -1 // of the null versions that are seen and have no note
	for i := range group {
		v := &group[i]
		switch {
		case v.Rank == Burned && v.Proven < 0:
			steps = append(steps, Step{Do: Prove, Version: i})
		case v.Rank == Burned && v.Proven >= r.Grace,
			// Tags came late, or who removed the version has died before.
			v.Rank == 0 && v.Tags && !v.Note && v.Age >= r.Grace:
			steps = append(steps, Step{Do: Finish, Version: i})
		case !v.Rank.Seen() || !v.Null:
		case newest >= 0:
			steps = append(steps, Step{Do: Supersede, Version: i, By: newest})
		case !v.Note:
			newest = i
			if v.Marker && len(group) == 1 && !more && r.Settled >= 0 && v.Age >= r.Settled {
				steps = append(steps, Step{Do: Unmark, Version: i})
			}
		}
	}
	return steps
}

// Upload is what there is to know of an upload in parts, and of the version that completes it.
type Upload struct {
	Open bool
	Age  time.Duration
	// Claimed is how long ago somebody last said how it shall end; negative: nobody has.
	Claimed time.Duration
	// Proven is how long ago its end was acknowledged, and the version as it is now; negative: this
	// cleaner does not know.
	Proven time.Duration
	// Version is the rank of the version, 0 if there is none, and VersionProven its Version.Proven.
	Version       Rank
	VersionProven time.Duration
}

// DecideUpload returns the step that is due for an upload: Settle, Condemn, Free, Finish or 0.
func DecideUpload(u Upload, r Rules) Do {
	switch {
	case u.Open && !u.Version.Seen() && u.Claimed < r.Grace && (r.Abandon == 0 || u.Age < r.Abandon):
		return 0
	case u.Open || u.Proven < 0:
		return Settle
	case u.Proven < r.Grace:
		return 0
	case u.Version == Live:
		return Settle
	case u.Version == Kept:
		return Free
	case u.VersionProven < 0:
		return Condemn
	case u.VersionProven >= r.Grace:
		return Finish
	}
	return 0
}
