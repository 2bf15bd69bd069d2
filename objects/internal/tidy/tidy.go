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
	Tags, Note   bool // stand beside it
	Size         int64
	Age          time.Duration // since its stamp
	// Over is since when it is newer than others: Age, but for the delete marker of an expired
	// object, whose stamp is that of the object.
	Over time.Duration
	// Proven is how long ago its burning was acknowledged by every data centre; negative: that is not
	// known.
	Proven time.Duration
}

// Rules are the times that cleaners wait.
type Rules struct {
	// Grace is longer than any read, and than any deadline, may take.
	Grace time.Duration
	// Soon, if it is not 0, is the grace of versions of the age Old: longer than deadlines that run from a read, while
	// Old is longer than those that run from a version's stamp. Streams of readers may take longer.
	Soon, Old time.Duration
	// Settled is the age at which nothing older than a version can arrive any more.
	Settled time.Duration
	// Unmark: delete markers that hide nothing are removed once that is settled. Without it users
	// see them, and they stay where no rule says otherwise.
	Unmark bool
	// Of are the rules of the bucket that are for this object.
	Of []Rule
	// Margin is how much longer than Noncurrent cleaners wait: longer than a delete by version
	// may take.
	Margin time.Duration
	// Abandon is the age at which an open upload is ended; 0: never.
	Abandon time.Duration
}

// Rule says when versions expire.
type Rule struct {
	// MinSize and Below: it is for versions of MinSize bytes or more, but less than Below, if that
	// is not 0. A rule with a bound is not for delete markers.
	MinSize, Below int64
	// Expire is the age at which what is seen as the object is hidden; 0: never.
	Expire time.Duration
	// Unmark: delete markers that hide nothing are removed.
	Unmark bool
	// Noncurrent is how long a version has not been the newest when it expires; 0: never.
	Noncurrent time.Duration
	// Newer is how many noncurrent versions stay whatever their age, at most MostNewer.
	Newer int
}

// MostNewer bounds Rule.Newer.
const MostNewer = 100

// Fits reports whether the rule is for a version.
func (r *Rule) Fits(v *Version) bool {
	if v.Marker {
		return r.MinSize == 0 && r.Below == 0
	}
	return v.Size >= r.MinSize && (r.Below == 0 || v.Size < r.Below)
}

// expire is the age at which the version is hidden; 0: never.
func (r *Rules) expire(v *Version) (least time.Duration) {
	for i := range r.Of {
		if one := &r.Of[i]; one.Expire > 0 && one.Fits(v) && (least == 0 || one.Expire < least) {
			least = one.Expire
		}
	}
	return least
}

// unmarks reports whether a delete marker that hides nothing is due to be removed.
func (r *Rules) unmarks(v *Version) bool {
	if !v.Marker || v.Age < r.Settled {
		return false
	}
	age := r.expire(v)
	return r.Unmark && v.Null || age > 0 && v.Age >= age ||
		slices.ContainsFunc(r.Of, func(one Rule) bool { return one.Unmark && one.Fits(v) })
}

// Line finds the noncurrent versions of an object that have expired, as it is shown all that are
// seen, newest first. It remembers the last ones only.
type Line struct {
	rules  []Rule
	margin time.Duration
	newer  []place // newest first
}

type place struct {
	at   int
	over time.Duration
}

// NewLine returns a line with no version. Of the rules Margin and Of count.
func NewLine(r *Rules) *Line { return &Line{rules: r.Of, margin: r.Margin} }

// Lapsed reports whether a version that is older than all that were added has expired: because of
// the version by right above it, and of enough, by which there are as many above that as shall stay.
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

// Add adds a version, by the place that Lapsed shall name.
func (l *Line) Add(at int, v *Version) {
	if l.newer = append(l.newer, place{at, v.Over}); len(l.newer) > 2*MostNewer {
		l.newer = slices.Delete(l.newer, 0, len(l.newer)-MostNewer-1)
	}
}

// Drop takes back the version that was added last.
func (l *Line) Drop() { l.newer = l.newer[:len(l.newer)-1] }

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
	// Lapse: keep By and Enough and, if they have no note then, burn the version, which has been
	// noncurrent for too long.
	Lapse
	// Settle: end the upload, and keep the version that completed it, if it is seen.
	Settle
	// Condemn: note and, if there is no version then, burn the version of an upload.
	Condemn
	// Free: delete the parts that the version does not list, then the rows of the upload.
	Free
)

// String is the name of the step.
func (d Do) String() string {
	return [...]string{"none", "supersede", "prove", "finish", "unmark", "expire", "lapse", "settle", "condemn", "free"}[d]
}

// Why says for people why the step is due.
func (d Do) Why() string {
	return [...]string{
		"nothing is due", "a newer version has taken its place", "it was deleted, perhaps not everywhere yet",
		"it was deleted, and the grace is over", "the delete marker hides nothing", "it is older than a rule allows",
		"it has not been the newest version for longer than a rule allows",
		"the upload has ended, or is older than a rule allows", "the upload has ended without a version",
		"the upload has become a version, and the grace is over",
	}[d]
}

// Step is one thing to do; Version, By and Enough are places in the group.
type Step struct {
	Do                  Do
	Version, By, Enough int
}

// Decide returns the steps that are due for a group, newest version first. They are independent of
// one another, but for those that lapse: the oldest comes first, as it relies on the next one. more:
// the group has older versions than these; behind: newer ones.
func Decide(group []Version, behind, more bool, r Rules) (steps []Step) {
	if first := slices.IndexFunc(group, func(v Version) bool { return v.Rank.Seen() }); first >= 0 && !behind {
		v := &group[first]
		if age := r.expire(v); age > 0 && v.Age >= age && !v.Marker && !v.Note {
			steps = append(steps, Step{Do: Expire, Version: first})
		}
	}
	if len(group) == 1 && !behind && !more && group[0].Rank.Seen() && !group[0].Note && r.unmarks(&group[0]) {
		steps = append(steps, Step{Do: Unmark})
	}
	newest := -1 // of the null versions that are seen and have no note
	line := NewLine(&r)
	var lapses []Step
	for i := range group {
		v := &group[i]
		switch {
		case v.Rank == Burned && v.Proven < 0:
			steps = append(steps, Step{Do: Prove, Version: i})
		case v.Rank == Burned && (v.Proven >= r.Grace || r.Soon > 0 && v.Proven >= r.Soon && v.Age >= r.Old),
			// Who removed the version has died before he removed the proof, or tags came late.
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
				break // nothing relies on it
			}
			if line.Add(i, v); v.Null {
				newest = i
			}
		}
	}
	slices.Reverse(lapses)
	return append(steps, lapses...)
}

// Upload is what there is to know of an upload in parts, and of the version that completes it.
type Upload struct {
	Open bool
	Age  time.Duration
	// Claimed is how long ago somebody last said how it shall end; negative: nobody has.
	Claimed time.Duration
	// Proven is how long ago its end was acknowledged, and the version as it is now; negative: that is not known.
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
