// Package pebblestore is the embedded store: the contract of package store over one Pebble
// database in one directory, for one process at a time.
//
// # Guarantees
//
// Durability: a write is acknowledged once it is in a synced write-ahead log, so that neither
// kill -9 nor a power loss undoes it. Writers share syncs (group commit) and hold no lock during
// one; puts of few rows share batches, too (docs/decisions/puts-in-groups.md). A read that finds
// a write which is not yet synced waits for its sync (usually there is none). So a row that was
// once returned stays, also across a crash.
//
// Last write wins, by timestamp, decided when a row is stored: a write compares itself with the
// present row, under a lock that is released before the sync.
// docs/decisions/pebble-last-write-wins.md has the reasons against a merger.
//
// Tombstones and removals are rows of their own, invisible to readers. They are kept for
// Options.TombstoneGrace after they were stored, by this machine's wall clock; a late, older put
// loses against them. Then they are dropped in the background, and an older put that arrives
// even later is stored.
//
// # A full disk
//
// Below a reserve of free space puts are refused with store.ErrFull and the bytes to free, and
// nothing is done. Copies of moves and nodes of maps may use a quarter of it; deletes, removals,
// swaps and markers half; compactions three quarters; and reads go on. The rest suffices to open
// the store again, so a store can always be opened on a disk that it has filled alone. If the disk
// is full nevertheless, since other programs write to it, the write-ahead log waits for space
// instead of failing: calls under way fail with Unavailable, and writing resumes automatically. The
// same holds for a lack of file descriptors or of memory. If the log can't be written or synced for
// another reason, all writing ends until the process is restarted; acknowledged writes are still
// there. Until then writes, and reads of what was never synced, fail at once with Unavailable;
// Writable returns the reason.
//
// Opening flushes the logs into tables. If other programs have taken the space for that, Open
// fails with Unavailable and the bytes to free, and leaves the directory as it was. The size of
// the logs would be a bad estimate of the space needed: where their contents compress well, a
// tenth suffices, and a directory on a disk of its own, where nothing else could be deleted,
// could never be opened. So Open tries, and continues in memory where the disk is full
// (openingFS), which also yields the exact need.
//
// # Tables
//
// Keys begin with a table byte; numbers are big-endian, so that they sort.
//
//	d bucket(16) partition(16) key       a row: kind(1) timestamp(8), then the cell (kind 1)
//	                                     or when the tombstone was stored (kind 2), in microseconds
//	x bucket partition stored-at(8)      a removal: version(1) timestamp(8) bounds
//	q stored-at(8) d|x ...               the keys of tombstones and removals, oldest first
//	r table(1) key                       a register: version(1) epoch(8) token(16) blob
//	h bucket(16) ^epoch(8)               a replaced root, newest first; as a register
//	n bucket(16) node(16)                a map node's bytes
//	m c                                  the ceiling: an upper bound of all timestamps (newest.go)
//
// The file EVENKEEL has the version of the format: since 2 Pebble knows groups of rows (groups.go). Pebble checksums
// every block and log record; what contradicts its checksum or this list is Corrupt.
package pebblestore
