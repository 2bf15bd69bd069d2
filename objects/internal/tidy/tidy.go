// Package tidy decides which steps a cleaner takes for the versions of one object, e.g. deletes a version, by the rules
// of docs/objects.md. The package is pure: it gets the versions as data and returns the steps as data, without any I/O.
package tidy

import (
	"slices"
	"time"
)

// Rank is the state of a version of an object: live, kept, burned (deleted, and invisible to readers) or gone. The rank
// of a version only grows. In whatever order the writes of a version arrive, the write with the highest rank wins,
// because its timestamp is the version's own plus an offset that grows with the rank.
type Rank byte

const (
	Live   Rank = 1
	Kept   Rank = 2 // seen like Live; a cleaner relies on the version
	Burned Rank = 3 // not seen any more; the blob will be deleted
	Gone   Rank = 4 // the row is deleted, so no record has this rank
)

// Seen reports whether readers can see a version with the state r. It returns false for the states of deleted versions.
func (r Rank) Seen() bool { return r == Live || r == Kept }

// Version is a summary of one version of an object, with the facts by which this package decides whether a cleaner
// deletes the version.
type Version struct {
	Rank         Rank // 0: the version has no row, but there are rows beside its place
	Marker, Null bool
	Tags, Note   bool // a row of tags, or a note, stands beside the version
	Size         int64
	Age          time.Duration // time since the version's stamp
	// Over is the time for which the version has hidden the older versions of its object. It is the same as Age, except
	// for the delete marker of an expired object. Such a marker was written later than its timestamp says, so Over is
	// less than Age.
	Over time.Duration
	// Proven is the time since every data centre is known to have acknowledged the deletion of the version. It is
	// negative if no acknowledgement is recorded.
	Proven time.Duration
}

// Rules are the rules by which a cleaner deletes versions of one object. They are the bucket's lifecycle rules that
// apply to the object, and the times that the cleaner waits before it deletes something.
type Rules struct {
	// Grace is how long a deleted version keeps its body. It is longer than any read or put may take.
	Grace time.Duration
	// Soon and Old let a cleaner free space sooner: if a deleted version is older than Old, its body is kept for Soon
	// instead of Grace. A reader that takes longer than Soon may find its body cut off. A Soon of 0 changes nothing.
	// The caller chooses the values:
	//
	//   - Old is longer than any put may take.
	//   - Soon is longer than the time between any read of a row and a write that depends on what was read.
	Soon, Old time.Duration
	// Settled is the age of a version from which on no write of an older version can arrive any more.
	Settled time.Duration
	// Unmark means that a delete marker that hides no version is removed once it is older than Settled. Unmark is false
	// where users see delete markers. Then only a Rule can have them removed.
	Unmark bool
	// Of are the bucket's lifecycle rules that apply to this object.
	Of []Rule
	// Margin is a time that is added to Rule.Noncurrent, so that a cleaner deletes a version later than the rule says.
	// It is longer than a user's deletion of a version may take.
	Margin time.Duration
	// Abandon is the age at which an open multipart upload is aborted. Zero means never.
	Abandon time.Duration
}

// Rule says at which age a version of an object is hidden or deleted. It is one of the bucket's lifecycle rules,
// reduced to the fields that this package needs.
type Rule struct {
	// MinSize and Below limit the rule to versions with MinSize <= size < Below, in bytes. A Below of 0 is no limit. A
	// rule with a limit does not apply to delete markers.
	MinSize, Below int64
	// Expire is the age at which the newest version, which readers see as the object, is hidden. Zero means never.
	Expire time.Duration
	// Unmark means that a delete marker is removed if it hides no version.
	Unmark bool
	// Noncurrent is the time after which a version is deleted that is not the newest any more, counted since the next
	// newer version came. Zero means never.
	Noncurrent time.Duration
	// Newer is the number of noncurrent versions, counted from the newest, that stay whatever their age. At most
	// MostNewer (100).
	Newer int
}

// MostNewer is the largest value of Rule.Newer, the number of older versions of an object that a rule keeps whatever
// their age.
const MostNewer = 100

// Fits reports whether the rule applies to the version v, judged by its size. A rule with a limit of sizes does not
// apply to delete markers.
func (r *Rule) Fits(v *Version) bool {
	if v.Marker {
		return r.MinSize == 0 && r.Below == 0
	}
	return v.Size >= r.MinSize && (r.Below == 0 || v.Size < r.Below)
}

// expire returns the age at which the version v is hidden if it is the newest version of its object. If several rules
// give an age, the lowest counts. The result is 0 if no rule gives an age.
func (r *Rules) expire(v *Version) (least time.Duration) {
	for i := range r.Of {
		if one := &r.Of[i]; one.Expire > 0 && one.Fits(v) && (least == 0 || one.Expire < least) {
			least = one.Expire
		}
	}
	return least
}

// unmarks reports whether v is a delete marker that a cleaner may remove, provided that v hides no older version. The
// result is true if
//
//   - v is older than Settled, and
//   - the rules ask for the removal, e.g. by Unmark.
func (r *Rules) unmarks(v *Version) bool {
	if !v.Marker || v.Age < r.Settled {
		return false
	}
	age := r.expire(v)
	return r.Unmark && v.Null || age > 0 && v.Age >= age ||
		slices.ContainsFunc(r.Of, func(one Rule) bool { return one.Unmark && one.Fits(v) })
}

// Line finds those versions of an object that a lifecycle rule deletes because newer versions have existed for long
// enough. The caller goes through all visible versions, the newest first. For each version it calls Lapsed, which
// decides about the version, and then Add. A Line remembers only the versions that were added last, at most 2 *
// MostNewer.
type Line struct {
	rules  []Rule
	margin time.Duration
	newer  []place // newest first
}

type place struct {
	at   int
	over time.Duration
}

// NewLine returns an empty Line. A Line finds the versions of one object that the rules r delete because newer versions
// exist. Of r it uses only the lifecycle rules (Of) and the time that a cleaner waits beyond them (Margin).
func NewLine(r *Rules) *Line { return &Line{rules: r.Of, margin: r.Margin} }

// Lapsed reports, as ok, whether a lifecycle rule deletes the version v because newer versions exist. All versions that
// were added to the Line are newer than v. If ok is true, the deletion relies on two of them, named by the numbers
// given to Add:
//
//   - by is the version that was added last, the next newer one;
//   - enough is the version that is Rule.Newer places newer than by.
//
// For example, the versions A, B, C and v follow each other from the newest to the oldest, and a rule keeps two
// noncurrent versions. Then by is C and enough is A. B and C are the two versions that the rule keeps.
func (l *Line) Lapsed(v *Version) (by, enough int, ok bool) {
	last := len(l.newer) - 1
	for i := range l.rules {
		r := &l.rules[i]
		if r.Noncurrent == 0 || last < r.Newer || !r.Fits(v) || l.newer[last].over < r.Noncurrent+l.margin {
			continue
		}
		if above := l.newer[last-r.Newer]; above.over >= l.margin {
			return l.newer[last].at, above.at, true
		}
	}
	return 0, 0, false
}

// Add adds the next older version of the object, v, to the Line. The parameter at is a number of the caller's, by which
// Lapsed names this version in its results.
func (l *Line) Add(at int, v *Version) {
	if l.newer = append(l.newer, place{at, v.Over}); len(l.newer) > 2*MostNewer {
		l.newer = slices.Delete(l.newer, 0, len(l.newer)-MostNewer-1)
	}
}

// Drop removes the version that was added last, so that no other version expires because of it.
func (l *Line) Drop() { l.newer = l.newer[:len(l.newer)-1] }

// Do is a kind of step that a cleaner takes with a version of an object or a multipart upload. For example, Finish is
// the deletion of the blobs of a version.
type Do byte

const (
	// Supersede deletes a null version because a newer null version, Step.By, has taken its place. First the cleaner
	// writes Step.By with the state kept. If a note then says that Step.By seems to be missing, nothing is deleted.
	Supersede Do = iota + 1
	// Prove writes the deletion of a version again, to get the acknowledgement of every data centre.
	Prove
	// Finish deletes the blobs of a deleted version, then the version's row and the rows that belong to the version.
	Finish
	// Unmark removes a delete marker that hides no version.
	Unmark
	// Expire hides the newest version of an object, as a delete of the object would.
	Expire
	// Lapse deletes a version that has not been the newest version for too long. First the cleaner writes Step.By and
	// Step.Enough with the state kept. If a note then says that one of them seems to be missing, nothing is deleted.
	Lapse
	// Settle ends a multipart upload, and writes the version that the upload has become with the state kept, if readers
	// see this version.
	Settle
	// Condemn deletes in advance a version that an upload has not become, after the cleaner has written a note. Nothing
	// is deleted if the version has appeared by then.
	Condemn
	// Free deletes the parts of an upload that its version does not use, then the rows of the upload.
	Free
)

// String returns the name of the kind of step, such as "finish".
func (d Do) String() string {
	return [...]string{"none", "supersede", "prove", "finish", "unmark", "expire", "lapse", "settle", "condemn", "free"}[d]
}

// Why returns the reason for a step of the kind d, as a sentence for people in logs.
func (d Do) Why() string {
	return [...]string{
		"nothing is due", "a newer version has taken its place", "it was deleted, perhaps not everywhere yet",
		"it was deleted, and the grace is over", "the delete marker hides nothing", "it is older than a rule allows",
		"it has not been the newest version for longer than a rule allows",
		"the upload has ended, or is older than a rule allows", "the upload has ended without a version",
		"the upload has become a version, and the grace is over",
	}[d]
}

// Step is one step that a cleaner takes with a version of an object, e.g. its deletion. Version, By and Enough are
// indices in the list of versions that was given to Decide.
type Step struct {
	Do                  Do
	Version, By, Enough int
}

// Decide returns the steps, e.g. deletions, that a cleaner should take now with the versions in group, in this order.
// The versions are of one object, the newest first. The parameter behind is true if the object has newer versions than
// those in group, and more is true if it has older ones.
func Decide(group []Version, behind, more bool, r Rules) (steps []Step) {
	// The order matters only for steps of kind Lapse, which delete versions that have not been the newest for too long.
	// The oldest version comes first, because its deletion relies on the next newer version, which a later step may
	// delete.
	if first := slices.IndexFunc(group, func(v Version) bool { return v.Rank.Seen() }); first >= 0 && !behind {
		v := &group[first]
		if age := r.expire(v); age > 0 && v.Age >= age && !v.Marker && !v.Note {
			steps = append(steps, Step{Do: Expire, Version: first})
		}
	}
	if len(group) == 1 && !behind && !more && group[0].Rank.Seen() && !group[0].Note && r.unmarks(&group[0]) {
		steps = append(steps, Step{Do: Unmark})
	}
	newest := -1 // of the null versions that are seen and have no note; -1: none yet
	line := NewLine(&r)
	var lapses []Step
	for i := range group {
		v := &group[i]
		switch {
		case v.Rank == Burned && v.Proven < 0:
			steps = append(steps, Step{Do: Prove, Version: i})
		case v.Rank == Burned && (v.Proven >= r.Grace || r.Soon > 0 && v.Proven >= r.Soon && v.Age >= r.Old),
			// A cleaner has died after it removed the version and before it removed the proof; or tags came late.
			v.Rank == 0 && v.Proven >= r.Grace,
			v.Rank == 0 && v.Tags && !v.Note && v.Age >= r.Grace:
			steps = append(steps, Step{Do: Finish, Version: i})
		case !v.Rank.Seen():
		case v.Null && newest >= 0:
			steps = append(steps, Step{Do: Supersede, Version: i, By: newest})
		default:
			if by, enough, ok := line.Lapsed(v); ok {
				lapses = append(lapses, Step{Do: Lapse, Version: i, By: by, Enough: enough})
			}
			if v.Note {
				break // no step relies on a version with a note
			}
			if line.Add(i, v); v.Null {
				newest = i
			}
		}
	}
	slices.Reverse(lapses)
	return append(steps, lapses...)
}

// Next returns when a cleaner should look again at an object for which no step, such as a deletion, is due now. The
// first step may be due after the time least. If ok is false, no step follows from waiting alone. Lifecycle rules, by
// which versions are deleted at some age, do not count.
//
// group has versions of the object, the newest first. The parameter behind is true if the object has newer versions
// than those in group, and more is true if it has older ones.
func Next(group []Version, behind, more bool, r Rules) (least time.Duration, ok bool) {
	wait := func(d time.Duration) {
		if !ok || d < least {
			least, ok = d, true
		}
	}
	for i := range group {
		switch v := &group[i]; {
		case v.Rank.Seen():
		case v.Proven >= 0:
			wait(r.Grace - v.Proven)
		case v.Rank == 0 && v.Tags && !v.Note:
			wait(r.Grace - v.Age)
		}
	}
	if len(group) == 1 && !behind && !more {
		if v := &group[0]; v.Rank.Seen() && v.Marker && v.Null && r.Unmark && !v.Note {
			wait(r.Settled - v.Age)
		}
	}
	return least, ok
}

// Upload is a summary of a multipart upload and of the versions that it has become. It has the facts by which this
// package decides what a cleaner does with the upload.
type Upload struct {
	Open bool
	Age  time.Duration
	// Claimed is the time since a client last announced how it is going to end the upload. It is negative if no client
	// has done so.
	Claimed time.Duration
	// Proven is the time since every data centre is known to have acknowledged the end of the upload, with the version
	// as it is now. It is negative if no acknowledgement is recorded.
	Proven time.Duration
	// Version is the state of the version that the upload has become, or 0 if readers see no version. If readers see
	// several versions, Version is Live if one of them is live.
	Version Rank
	// Strays is true if the upload has other versions that are deleted, or that clients have begun to make and that may
	// still appear. VersionProven is the least Version.Proven of these other versions.
	Strays        bool
	VersionProven time.Duration
}

// DecideUpload returns the step that a cleaner should take now with the multipart upload u: Settle, Condemn, Free or
// Finish, or 0 for nothing.
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
	case u.Version == Kept && !u.Strays:
		return Free
	case u.VersionProven < 0:
		return Condemn
	case u.VersionProven >= r.Grace && u.Version == Kept:
		return Free
	case u.VersionProven >= r.Grace:
		return Finish
	}
	return 0
}
