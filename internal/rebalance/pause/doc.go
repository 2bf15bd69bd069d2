// Package pause keeps in the store whether moves are paused, so that every process obeys,
// whoever leads, and whatever is started anew.
//
// A pause lets no move begin. What has begun goes on to its end, and when no batch is in
// flight any more the store is quiet: maps do not change, as a snapshot wants it.
//
// A mover that has just read "not paused" must not begin after somebody was told that the
// store is quiet, however long it was held up in between. No clock helps there, so it takes
// two steps. All is in one register:
//
//   - a mover first notes there that it begins, in which bucket and on which epoch of its
//     root; that fails where there is a pause. Then it swaps the root.
//   - who pauses first sets the pause; it finds noted there all swaps that may still come.
//     Then it swaps each of these roots for the same map at the next epoch: a swap that
//     comes later meets a Conflict. Only then it looks which batches are in flight.
//
// What is noted is of no meaning any more as soon as the root has left that epoch, whoever
// swapped it, so that anybody may strike it out then, and nobody has to.
package pause
