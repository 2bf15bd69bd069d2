/* Deleting a bucket while a range of it moves (spin model; run.sh beside this file).

   One key of one range, which moves from partition A to B by the phases of move.pml (0 settled on A, 1 marking, 2 copying,
   3 verifying, 4 draining, 5 settled on B). A root is a phase, a state and an epoch that grows with each swap. Whoever
   deletes: swaps the state to closing, waits, looks at both ends of the move, and swaps to deleted if they are empty, else
   back to open. It may die at any step; then somebody else opens the bucket again, at any time. The mover goes on meanwhile.
   Leases are granted on open roots only; any may end at any moment. A wait ends when no lease on an older epoch is alive.

   The bucket has remains, which do not keep it from being deleted: an open upload, with the bodies of its parts. A put is its
   completion: it makes an entry of these bodies. They are deleted once the root is deleted, by whoever finds it so: from then on
   nobody opens the bucket again (BUG_DISCARD_CLOSING: before, when nobody can write, but the bucket may be opened again).

   Asserted: a deleted bucket has no entry whose put was acknowledged, and nothing is acknowledged in it. What is acknowledged
   has its bodies.

   What keeps the search small, and why nothing is lost by it:
   - Steps are joined into one (atomic) where all but one of them concern variables that no other process writes, or reads
     meanwhile.
   - What is not looked at any more is zeroed: the locals between two rounds, the lease of a client that has done all it does.
   - Those who delete are alike, so only the runs in which the first of them begins first are looked at; and likewise clients. */
#ifndef NC
#define NC 2
#endif
#ifndef K
#define K 1
#endif
#ifndef TRIES
#define TRIES 1               /* of each who deletes, and of who opens again */
#endif
#ifndef ND
#define ND 2                  /* who delete */
#endif
#define OPEN 0
#define CLOSING 1
#define DELETED 2
#define PUT 1
#define DEL 2                 /* a tombstone or a marker: what they differ in is a matter of move.pml */
#define SRC(p) (p < 5 -> 0 : 1)
#define HOME(p) (p < 2 -> 0 : 1)
byte phase = 0, state = OPEN, epoch = 0;
byte P[2], kind[NC*K+2], stamp = 1, acked = 0;
bool bodies = 1;              /* of the upload */
byte vphase[NC], vepoch[NC]; bool lease[NC];

inline newest(i, v) { d_step { if :: P[i] < v -> P[i] = v :: else fi } }
inline gone() {               /* within atomic, after the swap to deleted */
  assert(acked == 0 || kind[acked] == DEL)
}

byte begun = 0, leased = 0;   /* how many of those who delete, and of the clients, have begun */

proctype client(byte id) {
  byte n = 0, ts;
  leased == id;
  do
  :: atomic { n < K && !lease[id] &&
#ifdef BUG_LEASE_CLOSING
              state != DELETED ->
#else
              state == OPEN ->
#endif
                 vphase[id] = phase; vepoch[id] = epoch; lease[id] = 1;
                 leased = (leased == id -> id + 1 : leased) }
  :: atomic { n < K && lease[id] -> n++ };
     atomic { ts = stamp; stamp++; if :: kind[ts] = PUT :: kind[ts] = DEL fi };
     newest(HOME(vphase[id]), ts);
     atomic { if
       :: lease[id] -> assert(state != DELETED && (bodies || kind[ts] == DEL)); if :: acked < ts -> acked = ts :: else fi
#ifdef BUG_ACK_CLOSED
       :: !lease[id] && phase == vphase[id] ->                       /* the same partition and phase, but is it open? */
#else
       :: !lease[id] && phase == vphase[id] && state == OPEN ->      /* its lease is over: it counts in the same open bucket */
#endif
          if :: acked < ts -> acked = ts :: else fi; assert(state != DELETED && (bodies || kind[ts] == DEL))
#if defined(PROBE) && PROBE == 2
          ; assert(false)
#endif
       :: else -> skip
       fi; ts = 0 }
  :: atomic { n == K || state == DELETED -> lease[id] = 0; vphase[id] = 0; vepoch[id] = 0;
              leased = (leased == id -> id + 1 : leased); break }
  od
}

proctype time() {             /* any lease may run out at any moment */
end: do
  :: atomic { lease[0] -> lease[0] = 0 }
  :: atomic { NC > 1 && lease[NC-1] -> lease[NC-1] = 0 }
  od
}

inline await(e) { !(lease[0] && vepoch[0] < e) && !(lease[NC-1] && vepoch[NC-1] < e) }

proctype deleter(byte id) {
  byte n = 0, e, p, a, b;
  do
  :: n == TRIES || state == DELETED -> break
  :: atomic { n < TRIES && state != DELETED && begun >= id ->
       begun = (begun == id -> id + 1 : begun);
       n++; p = phase; if :: state == OPEN -> state = CLOSING; epoch++ :: else fi; e = epoch };
again:
#ifndef BUG_NO_WAIT
     await(e);
#endif
     /* an end that the phase does not name has nothing, or what nobody reads */
#ifdef BUG_LOOK_AT_HOME
     atomic { if :: HOME(p) == 0 -> a = P[0] :: else -> b = P[1] fi };
#else
     atomic { if :: p < 4 -> a = P[0] :: else fi };
     atomic { if :: p > 0 -> b = P[1] :: else fi };
#endif
     atomic { a = (a < b -> b : a); b = 0; if :: kind[a] != PUT -> a = 0 :: else fi };   /* no entry: none, or deleted */
     if
     :: atomic { e = 0; p = 0; a = 0; break }              /* it dies, and leaves the bucket closing */
     :: a == 0 ->
#ifdef BUG_DISCARD_CLOSING
        bodies = 0;
#endif
        atomic { if
#ifdef BUG_DELETE_UNCHECKED
        :: state == CLOSING -> state = DELETED; epoch++; gone()
#else
        :: epoch == e && state == CLOSING -> state = DELETED; epoch++; gone()
#endif
#if defined(PROBE) && PROBE == 1
           ; assert(phase == 0 || phase == 5)
#endif
        :: else -> e = epoch; p = phase fi };
        atomic { if :: state == CLOSING -> goto again :: else -> e = 0; p = 0 fi }   /* the map has moved on: look anew */
     :: atomic { a > 0 -> if :: epoch == e && state == CLOSING -> state = OPEN; epoch++ :: else fi; e = 0; p = 0; a = 0 }
     fi
  od;
  atomic { if :: state == DELETED -> bodies = 0; gone() :: true fi }   /* or it dies */
}

proctype reopener() {                                      /* whoever finds the bucket closing for too long */
  byte n = 0;
end: do
  :: atomic { n < TRIES && state == CLOSING -> n++; state = OPEN; epoch++ }
  od
}

proctype mover() {
  byte p, e, r;
  do
  :: phase == 5 || state == DELETED -> break
  :: phase < 5 && state != DELETED ->
     atomic { p = phase; e = epoch };
     await(e);
     if
     :: atomic { (p == 2 || p == 3) -> r = P[0] }; atomic { if :: r > 0 -> newest(1, r) :: else fi; r = 0 }
     :: p == 4 -> P[0] = 0
     :: p < 2
     fi;
     atomic {
#ifdef BUG_MOVE_DELETED
     if :: phase == p -> phase++; epoch++; state = (state == DELETED -> OPEN : state) :: else fi;
#else
     if :: epoch == e && (p > 0 || state == OPEN) -> phase++; epoch++ :: else fi;   /* none begins while closing */
#endif
     p = 0; e = 0 }
  od
}

init { atomic { byte i = 0;
  do :: i < NC -> run client(i); i++ :: else -> break od;
  i = 0; do :: i < ND -> run deleter(i); i++ :: else -> break od;
  run time(); run reopener(); run mover(); i = 0 } }
