// Package tidy decides which steps a cleaner takes for the versions of one object, by the rules of docs/objects.md. The
// package is pure: it gets the versions as data and returns the steps as data, without any I/O.
package tidy

import (
	"slices"
	"time"
)

// Rank is the state of a version of an object: live, kept, burned (deleted, and invisible to readers) or gone. The rank
// of a version only grows. Each state is written at the version's own timestamp plus an offset that grows with the
// rank. So the write with the highest rank wins, whatever the order in which the writes arrive.
type Rank byte

const (
	Live   Rank = 1
	Kept   Rank = 2 // seen like Live; a cleaner relies on the version
	Burned Rank = 3 // not seen any more; the blob will be deleted
	Gone   Rank = 4 // the row is deleted, so no record has this rank
)

// Seen reports whether readers can see a version with the state r. false: the version is deleted.
func (r Rank) Seen() bool { return r == Live || r == Kept }

// Version is what this package needs to know of one version of an object to decide whether a cleaner deletes it.
type Version struct {
	Rank         Rank // 0: the version has no row, but there are rows beside its place
	Marker, Null bool
	Tags, Note   bool // a row of tags, or a note, stands beside the version
	Size         int64
	Age          time.Duration // time since the version's stamp
	// Over is the time for which the version has been newer than the versions below it. That is Age, except for the
	// delete marker of an expired object: it was written later than its stamp says, so Over is less than Age.
	Over time.Duration
	// Proven is the time since every data centre has acknowledged that the version is burned. Negative: there is no
	// proof of that.
	Proven time.Duration
}

// Rules are what decides about the versions of one object: the lifecycle rules of the bucket that are for this object,
// and the times that a cleaner waits before it deletes something.
type Rules struct {
	// Grace is how long a burned version keeps its blob. It is longer than any read may take, and longer than any
	// deadline.
	Grace time.Duration
	// Soon and Old let a cleaner delete sooner, to make room: the blob of a burned version that is older than Old is
	// kept for Soon instead of Grace. Soon is longer than every deadline that runs from a read, and Old is longer than
	// every deadline that runs from a version's stamp. A reader's stream that takes longer than Soon may break off. A
	// Soon of 0 changes nothing.
	Soon, Old time.Duration
	// Settled is the age of a version at which nothing older than the version can arrive any more.
	Settled time.Duration
	// Unmark means that a delete marker that hides nothing is removed once it is older than Settled. Unmark is false
	// where users see delete markers: then they stay, unless a Rule says otherwise.
	Unmark bool
	// Of are the rules of the bucket's lifecycle that are for this object.
	Of []Rule
	// Margin is added to Rule.Noncurrent: cleaners wait longer than users, by more than a delete by version may take.
	Margin time.Duration
	// Abandon is the age at which an open upload is ended. 0: never.
	Abandon time.Duration
}

// Rule says at which age a version is hidden or deleted. It is a rule of the bucket's lifecycle, reduced to what this
// package needs.
type Rule struct {
	// MinSize and Below limit the rule to versions of MinSize <= size < Below bytes; a Below of 0 is no limit. A rule
	// with such a limit is not for delete markers.
	MinSize, Below int64
	// Expire is the age at which the newest version, the one that readers see as the object, is hidden; 0: it never is.
	Expire time.Duration
	// Unmark means that delete markers that hide nothing are removed.
	Unmark bool
	// Noncurrent is the time after which a version that is not the newest any more expires; 0: it never does.
	Noncurrent time.Duration
	// Newer is the number of noncurrent versions, the newest ones, that stay whatever their age. At most MostNewer.
	Newer int
}

// MostNewer is the largest value of Rule.Newer, the number of older versions of an object that a rule keeps whatever
// their age.
const MostNewer = 100

// Fits reports whether the rule is for the version v, by its size. A rule with a limit of sizes is not for delete
// markers.
func (r *Rule) Fits(v *Version) bool {
	if v.Marker {
		return r.MinSize == 0 && r.Below == 0
	}
	return v.Size >= r.MinSize && (r.Below == 0 || v.Size < r.Below)
}

// expire returns the age at which the version v is hidden if it is the newest one of its object; 0: it never is. If
// several rules say so, the lowest age counts.
func (r *Rules) expire(v *Version) (least time.Duration) {
	for i := range r.Of {
		if one := &r.Of[i]; one.Expire > 0 && one.Fits(v) && (least == 0 || one.Expire < least) {
			least = one.Expire
		}
	}
	return least
}

// unmarks reports whether the version v is a delete marker that may be removed, provided that it hides no older
// version. It must be older than Settled, and the rules must ask for its removal.
func (r *Rules) unmarks(v *Version) bool {
	if !v.Marker || v.Age < r.Settled {
		return false
	}
	age := r.expire(v)
	return r.Unmark && v.Null || age > 0 && v.Age >= age ||
		slices.ContainsFunc(r.Of, func(one Rule) bool { return one.Unmark && one.Fits(v) })
}

// Line finds the versions of an object that have expired because they have not been the newest one for too long. The
// caller goes through all visible versions, the newest first. For each one it calls Lapsed, and then Add. A Line
// remembers only the versions that were added last, at most 2 * MostNewer.
type Line struct {
	rules  []Rule
	margin time.Duration
	newer  []place // newest first
}

type place struct {
	at   int
	over time.Duration
}

// NewLine returns a Line that has seen no version yet. Of the rules r it uses only Margin and Of.
func NewLine(r *Rules) *Line { return &Line{rules: r.Of, margin: r.Margin} }

// Lapsed reports whether the version v has expired because it is not the newest one. v is older than all versions that
// were added. If ok is true, by and enough are the places of two added versions because of which v may be deleted. by
// is the next newer version: since then v is not the newest. enough is Rule.Newer places above by. Because of it, the
// versions below it down to by, which the rule keeps, are not the newest either.
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

// Add adds the next version, v. The number at is its place, by which Lapsed later names this version in its results.
func (l *Line) Add(at int, v *Version) {
	if l.newer = append(l.newer, place{at, v.Over}); len(l.newer) > 2*MostNewer {
		l.newer = slices.Delete(l.newer, 0, len(l.newer)-MostNewer-1)
	}
}

// Drop removes the version that was added last: no other version may expire because of it.
func (l *Line) Drop() { l.newer = l.newer[:len(l.newer)-1] }

// Do is a kind of step that a cleaner takes with a version or an upload, such as Finish, which deletes the blobs of a
// version.
type Do byte

const (
	// Supersede burns a null version because a newer null version, By, has taken its place. First it writes By with the
	// rank kept. If By then has a note, nothing is burned.
	Supersede Do = iota + 1
	// Prove burns a version again that is burned already, to get the acknowledgement of every data centre.
	Prove
	// Finish deletes the blobs of a burned version, then its row and the rows beside it.
	Finish
	// Unmark removes a delete marker that hides nothing.
	Unmark
	// Expire hides the newest version, as a delete of the object would.
	Expire
	// Lapse burns a version that has not been the newest one for too long. First it writes By and Enough with the rank
	// kept. If one of them then has a note, nothing is burned.
	Lapse
	// Settle ends an upload, and writes the version that completed it with the rank kept, if that version is seen.
	Settle
	// Condemn burns a version that an upload has not become, after it has written a note. It burns nothing if the
	// version has appeared by then.
	Condemn
	// Free deletes the parts of an upload that its version does not list, then the rows of the upload.
	Free
)

// String returns the name of the kind of step, such as "finish".
func (d Do) String() string {
	return [...]string{"none", "supersede", "prove", "finish", "unmark", "expire", "lapse", "settle", "condemn", "free"}[d]
}

// Why returns the reason for a step of the kind d, as a sentence for people.
func (d Do) Why() string {
	return [...]string{
		"nothing is due", "a newer version has taken its place", "it was deleted, perhaps not everywhere yet",
		"it was deleted, and the grace is over", "the delete marker hides nothing", "it is older than a rule allows",
		"it has not been the newest version for longer than a rule allows",
		"the upload has ended, or is older than a rule allows", "the upload has ended without a version",
		"the upload has become a version, and the grace is over",
	}[d]
}

// Step is a step that a cleaner takes with one version of an object. Version, By and Enough are indices in the list of
// versions that was given to Decide.
type Step struct {
	Do                  Do
	Version, By, Enough int
}

// Decide returns what a cleaner should do now with the versions in group, such as deleting one. These are versions of
// one object, the newest first. behind means that the object has newer versions, too, and more that it has older ones.
// The order of the steps matters only for those of kind Lapse, which delete versions that have not been the newest for
// too long. The oldest version comes first, because its deletion relies on the version above it, which a later step may
// delete.
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

// Next returns the time after which a cleaner should look at the versions in group again, because a step such as a
// deletion may be due by then. Nothing is to be done now. ok is false if time alone makes no step due. Rules that
// delete versions by age are not considered. The newest version is the first one; behind means that the object has
// newer versions, too, and more that it has older ones.
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

// Upload is what this package needs to know of an upload in parts, and of the version that it has become, to decide
// what a cleaner does with the upload.
type Upload struct {
	Open bool
	Age  time.Duration
	// Claimed is the time since a client last claimed how the upload shall end. Negative: no client has.
	Claimed time.Duration
	// Proven is the time since every data centre had acknowledged the end of the upload, with the version as it is now.
	// Negative: there is no such proof.
	Proven time.Duration
	// Version is the rank of the version, or 0 if none is seen. If several are seen, it is Live if one of them is live.
	Version Rank
	// Strays is true if there are other versions that are burned, or that clients have claimed to make and that may
	// still come. VersionProven is the least Version.Proven of them.
	Strays        bool
	VersionProven time.Duration
}

// DecideUpload returns what a cleaner should do now with the upload u in parts: a step of kind Settle, Condemn, Free or
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
