// Package pause keeps in the store whether moves are paused, so that every process obeys the pause, also after a
// restart or a change of the leader.
//
// During a pause no move begins. Running moves go on, and when no batch is left the store is quiet: maps do not change,
// as a snapshot needs it.
//
// A mover may read "not paused" and then be held up, for any time. It must not begin after the store was reported
// quiet. No clock helps here, so a mover takes two steps, with one register (docs/protocol.md, "Pauses"):
//
//   - A mover first writes a note into the register that a move begins: the bucket, and the epoch of its root. During a
//     pause this write fails. Only then the mover swaps the root.
//   - Quiet reads the register after the pause was set, and finds the notes of all swaps that may still come. It swaps
//     each of these roots for the same map at the next epoch, so that a late swap meets a Conflict. Only then it checks
//     for batches in flight.
//
// A note is void as soon as the root has left the epoch in the note. Then any process may remove the note, and no
// process has to.
package pause
