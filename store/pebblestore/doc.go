// Package pebblestore is the embedded store: the contract of package store over
// one Pebble database in one directory. Nothing to install, no server; one
// process at a time.
//
// # What it guarantees
//
// Durable: a write is acknowledged once it lies in a synced write-ahead log, so
// that neither kill -9 nor a power loss takes it back. Writers share syncs
// (group commit) and hold no lock during one; puts of few rows share batches, too
// (docs/decisions/puts-in-groups.md). A read never shows a write that
// is not yet synced, it waits for that sync instead (usually there is none to
// wait for); so what was once shown stays, also across a crash.
//
// Last write wins by timestamp, decided when a row is stored: a write reads the
// present row and compares, under a lock that is released before the sync.
// docs/decisions/pebble-last-write-wins.md says why not by a merger.
//
// Tombstones and removals are rows of their own, invisible to readers, kept for
// Options.TombstoneGrace from the moment at which they were stored, by this
// machine's wall clock. Within it a late, older put loses. After it they are
// collected in the background, and nothing protects against a write that comes
// later still.
//
// # A full disk
//
// Below a reserve of free space puts are refused as Unavailable, with the bytes
// to free; deletes, removals and swaps go on into half of it, compactions into
// three quarters, and reads go on throughout. The rest suffices to open the store
// again, so a disk that was filled through it alone always can be. If the disk is full all the same (others write to
// it too), the write-ahead log waits for space instead of failing: calls under
// way answer Unavailable, and everything resumes by itself. So it is with a lack of
// file descriptors or of memory. A log that can't be
// written or synced for another reason ends all writing until the process is
// started anew; what was acknowledged is then still there. From then on writes, and
// reads of what was never synced, fail at once as Unavailable; Writable says why.
//
// Opening writes what the logs hold into tables. If others have taken the space
// for that, Open fails as Unavailable with the bytes to free, and leaves the
// directory as it was. It does not judge by the size of the logs beforehand: how
// much their contents need as tables is not known (a tenth, where they compress
// well), and a directory on a disk or under a quota of its own, where nothing
// else could be deleted, would be shut out for nothing. It finds out instead, in
// memory from where the disk ends (openingFS), which also tells the exact need.
//
// # What lies where
//
// Keys begin with a table byte; numbers are big-endian, so that they sort.
//
//	d bucket(16) partition(16) key       a row: kind(1) timestamp(8), then the cell (kind 1)
//	                                     or when the tombstone was stored (kind 2), in microseconds
//	x bucket partition stored-at(8)      a removal: version(1) timestamp(8) bounds
//	q stored-at(8) d|x ...               what to collect, oldest first: the row's or removal's key follows
//	r table(1) key                       a register: version(1) epoch(8) token(16) blob
//	h bucket(16) ^epoch(8)               a replaced root, newest first; as a register
//	n bucket(16) node(16)                a map node's bytes
//	m c                                  a timestamp that no stored row is above (newest.go)
//
// The file EVENKEEL names the format. Pebble checksums every block and log
// record; what does not fit its checksum or this list is Corrupt.
package pebblestore
