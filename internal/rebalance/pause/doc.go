// Package pause keeps in the store whether moves are paused, so that every process obeys, also
// after a restart or a change of the leader.
//
// Under a pause no move begins. Moves in flight go on, and when no batch is left the store is
// quiet: maps do not change, as a snapshot needs it.
//
// A mover that has just read "not paused" must not begin after the store was reported quiet,
// however long it was held up in between. No clock helps there, so it takes two steps, with
// one register (docs/protocol.md, "Pauses"):
//
//   - A mover first notes in the register that it begins: bucket, and epoch of its root. Under
//     a pause that fails. Then it swaps the root.
//   - Quiet finds in the register, after the pause was set, all swaps that may still come. It
//     swaps each of these roots for the same map at the next epoch, so that a late swap meets
//     a Conflict. Only then it looks for batches in flight.
//
// A note is void as soon as the root has left the epoch. Anybody may strike it out then, and
// nobody has to.
package pause
