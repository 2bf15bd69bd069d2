// Package pebblestore is the embedded store. It implements the contract of package store over one Pebble database in
// one directory, which one process at a time has open.
//
// # Guarantees
//
// Durability: a write is acknowledged once it is in a synced write-ahead log, so that neither kill -9 nor a power loss
// undoes the write. Writers share syncs (group commit) and hold no lock during a sync. Puts of few rows share batches,
// too (docs/decisions/puts-in-groups.md). A read that finds a write which is not yet synced waits for the sync; usually
// there is no such write. So a row that a read has returned is still there after a crash.
//
// Last write wins, by timestamp. The winner is decided when a row is stored: the write compares itself with the present
// row, under a lock that is released before the sync. docs/decisions/pebble-last-write-wins.md has the reasons against
// a merger of Pebble.
//
// Tombstones and removals are rows of their own, invisible to readers. They are kept for Options.TombstoneGrace after
// they were stored, by this machine's wall clock. During this time a late put with an older timestamp loses against
// them. Then they are dropped in the background, and an older put that arrives even later is stored.
//
// # A full disk
//
// The reserve is free space that is kept for opening the store. When less is free, puts are refused with store.ErrFull,
// which says how many bytes to free, and nothing is done. Copies of moves and nodes of maps may use a quarter of the
// reserve; deletes, removals, swaps and markers half; compactions three quarters. Reads go on. The rest of the reserve
// suffices to open the store again. So a store can always be opened on a disk that the store has filled alone.
//
// Other programs may fill the disk nevertheless. Then the write-ahead log waits for space instead of failing: calls
// under way fail with Unavailable, and writing resumes automatically. The same holds for a lack of file descriptors or
// of memory. If the log can't be written or synced for another reason, all writing ends until the process is restarted;
// acknowledged writes are still there. Until the restart, writes fail at once with Unavailable, and so do reads of rows
// that were never synced; Writable returns the reason.
//
// Opening flushes the logs into tables. If other programs have taken the space for the flush, Open fails with
// Unavailable and the number of bytes to free, and leaves the directory as it was. The size of the logs would be a bad
// estimate of the space needed: if their contents compress well, a tenth suffices. A directory on a disk of its own, on
// which nothing else could be deleted, could then never be opened. So Open tries to flush. If the disk is full, the
// flush goes on in memory (openingFS), which also yields the exact need.
//
// # Tables
//
// Keys begin with a byte that names the table. Numbers are big-endian, so that their bytes sort like the numbers.
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
// The file EVENKEEL has the version of the format: in even versions Pebble knows groups of rows (groups.go). Pebble
// checksums every block and log record. Data that contradicts its checksum or this list is Corrupt.
package pebblestore
