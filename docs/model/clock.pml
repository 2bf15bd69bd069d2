/* Swaps and bumps of unknown outcome (spin model; run.sh beside this file).

   Movers take a map through the epochs 0 to LAST: each swap is a compare-and-swap of root, and between two swaps a mover
   waits. Any answer may be lost; then the swap or bump was applied, or will be applied later if its register has not changed
   by then, or never will. root and clock are what reads at Serial show; seen and cseen are what clients read: they come
   behind at any time, or at once when somebody acknowledges. A client acts on the root that it read after a clock value; it
   takes the root anew when it sees another clock value; its lease may end at any moment. A wait for a clock value is over
   when no lease granted under a lower one is alive. Movers crash and forget everything at any step.

   Asserted (I3): whenever the map goes on, no lease is more than one epoch behind.

   What keeps the search small, and why nothing is lost by it:
   - Steps are joined into one (atomic) where all but one of them concern variables that no other process writes, or reads
     meanwhile. The bound on epochs is looked at together with the root; it is no part of the protocol.
   - What is not looked at any more is zeroed: a mover's variables between two rounds, the view of a client that has had all of
     its leases, what a mover knows (safe) of an epoch that is over.
   - A swap that may yet be applied is forgotten when its register has moved on: a register never comes back to a version.
   Without all this K=1 and CRASHES=0 has 2,843,773 states, with it 318,758; every combination of root, seen, clock, cseen,
   waited, lost and a lease with its view and grant that was reached still is, and no other (compared by printing them). */
#ifndef NC
#define NC 1
#endif
#ifndef NM
#define NM 2
#endif
#ifndef K
#define K 2                   /* leases that each client takes */
#endif
#ifndef LAST
#define LAST 2
#endif
#ifndef LOST
#define LOST 1                /* answers that are lost, in all */
#endif
#ifndef CRASHES
#define CRASHES 1             /* of movers, in all */
#endif
#ifndef BUMPS
#define BUMPS 3               /* movers end when the clock stands there */
#endif
#define NONE 255
byte root = 0, seen = 0;
byte clock = 0, cseen = 0, waited = 0;
byte view[NC], grant[NC]; bool lease[NC];
byte late[NM] = NONE;                       /* the epoch from which a swap of this mover may yet be applied */
byte lateb[NM] = NONE;                      /* and the clock value from which a bump may */
byte lost = 0, crashes = 0;
#if NM > 2
#error "advance and raise look at two movers only"
#endif

inline neighbours() {                       /* within atomic */
  assert(!(lease[0] && view[0] + 1 < root) && !(lease[NC-1] && view[NC-1] + 1 < root))
}
inline advance() {                          /* within atomic: the map goes on, and what was late for the old epoch never will be applied */
  late[0] = (late[0] == root -> NONE : late[0]); late[NM-1] = (late[NM-1] == root -> NONE : late[NM-1]);
  root++; neighbours()
}
inline raise() {                            /* within atomic: likewise the clock */
  lateb[0] = (lateb[0] == clock -> NONE : lateb[0]); lateb[NM-1] = (lateb[NM-1] == clock -> NONE : lateb[NM-1]);
  clock++
}

proctype client(byte id) {
  byte n = 0, c, w; bool known = 0;
  do
  :: atomic { n < K && !lease[id] ->        /* the clock first, then the root */
              n++; c = cseen; w = (waited > c -> waited : c) };
     atomic { view[id] = seen;              /* a wait that has ended since then was for a higher value: so this lease is over */
              if :: waited > w -> skip :: else -> lease[id] = 1; grant[id] = c; known = 1; neighbours() fi; c = 0; w = 0 }
  :: atomic { n < K && !lease[id] && known -> /* or the clock alone: as long as it shows no bump the root is the same */
              n++; c = cseen; w = (waited > c -> waited : c) };
     atomic { if :: c != grant[id] || waited > w -> skip :: else -> lease[id] = 1; neighbours() fi; c = 0; w = 0 }
  :: lease[id] -> lease[id] = 0             /* it has seen a bump, or its time is over */
  :: atomic { n == K && !lease[id] -> view[id] = 0; grant[id] = 0; known = 0; break }
  od
}

proctype replicas() {                       /* what comes late */
end: do
  :: atomic { seen < root -> seen = root }
  :: atomic { cseen < clock -> cseen = clock }
  :: atomic { late[0] == root -> advance()
#if defined(PROBE) && PROBE == 1
       ; assert(false)
#endif
     }
  :: atomic { lateb[0] == clock -> raise()
#if defined(PROBE) && PROBE == 2
       ; assert(false)
#endif
     }
#if NM > 1
  :: atomic { late[1] == root -> advance() }
  :: atomic { lateb[1] == clock -> raise() }
#endif
  od
}

#if defined(PROBE) && PROBE == 3
#define own() others = false
#else
#define own() skip
#endif

#define crash() atomic { crashes < CRASHES -> crashes++; p = 0; v = 0; mine = 0; safe = NONE; goto top }

proctype mover(byte id) {
  byte p, v, mine, safe = NONE; bool ok;
#if defined(PROBE) && PROBE == 3
  bool others;
#endif
top:
  do
  :: root >= LAST || clock >= BUMPS -> break
  :: atomic { root < LAST && clock < BUMPS ->
       p = root;
       safe = (safe == p -> safe : NONE)
#ifdef BUG_OTHERS_BUMP
       ; v = clock                          /* before its swap, and used after it */
#endif
     };
     if
     :: safe == p || p == 0 -> skip         /* epoch 0: nobody acts on an older one */
     :: safe != p && (p > 0 || (id == 1 && clock == 0)) ->   /* one may have begun to announce epoch 0 */
announce:
#ifdef BUG_ROOT_UNACKNOWLEDGED
        p = root;
#else
#ifdef BUG_LOST_SWAP_DONE
        atomic { seen = root };
#else
        atomic { p = root; seen = root };
#endif
#endif
#ifndef BUG_OTHERS_BUMP
        v = clock;
#endif
#if defined(PROBE) && PROBE == 3
        others = true;
#endif
        do
        :: crash()
        :: clock >= BUMPS -> goto out
        :: clock > v -> mine = clock;       /* somebody's, or an own one that came late: it came after v was read */
#if defined(PROBE) && PROBE == 3
           assert(!others);
#endif
           break
        :: clock == v -> mine = clock;       /* compare-and-swap from here */
           if
           :: atomic { clock == mine -> raise(); own() }; mine++; break
           :: atomic { lost < LOST && clock == mine -> lost++; raise(); own() }; mine++
#ifdef BUG_LOST_BUMP_DONE
              ; break
#endif
           :: atomic { lost < LOST && lateb[id] == NONE -> lost++; lateb[id] = (clock == mine -> mine : NONE); own() }; mine++
#ifdef BUG_LOST_BUMP_DONE
              ; break
#endif
           :: clock != mine -> skip         /* a conflict */
           fi;
           mine = 0                         /* look again */
        od;
#ifndef BUG_BUMP_UNACKNOWLEDGED
        cseen = clock;
#endif
        if
        :: crash()
        :: atomic {
#ifndef BUG_NO_WAIT
          !(lease[0] && grant[0] < mine) && !(lease[NC-1] && grant[NC-1] < mine) -> if :: waited < mine -> waited = mine :: else fi;
#endif
          safe = p; mine = 0
#ifndef BUG_OTHERS_BUMP
          ; v = 0
#endif
        }
        fi
     fi;
     if                                     /* swap p to p + 1 */
     :: crash()
     :: atomic { root == p && p < LAST -> advance(); ok = true }
     :: atomic { lost < LOST && root == p && p < LAST -> lost++; advance()
#ifdef BUG_LOST_SWAP_DONE
        ; ok = true
#endif
        }
     :: atomic { lost < LOST && late[id] == NONE && p < LAST -> lost++; late[id] = (root == p -> p : NONE)
#ifdef BUG_LOST_SWAP_DONE
        ; ok = true
#endif
        }
     :: root != p || p >= LAST -> skip      /* a conflict */
     fi;
     atomic {
       if
       :: ok && p + 1 < LAST -> p++; ok = false; goto announce   /* known: its wait begins now */
       :: else -> p = 0; ok = false         /* unknown: look again, and wait anew */
       fi
     }
  od;
out:
  atomic { p = 0; v = 0; mine = 0; safe = NONE }
}

init { atomic { byte i = 0;
  do :: i < NC -> run client(i); i++ :: else -> break od; i = 0;
  do :: i < NM -> run mover(i); i++ :: else -> break od;
  run replicas(); i = 0 } }
