/* Swaps and bumps of unknown outcome (spin model; run.sh beside this file).

   Movers take a map through the epochs 0 to LAST: each swap is a compare-and-swap of root, and between two swaps a mover
   waits. Any answer may be lost; then the swap or bump was applied, or will be applied later if its register has not changed
   by then, or never will. root and clock are what reads at Serial show; seen and cseen are what clients read: they come
   behind at any time, or at once when somebody acknowledges. A client acts on the root that it read after a clock value; it
   takes the root anew when it sees another clock value; its lease may end at any moment. A wait for a clock value is over
   when no lease granted under a lower one is alive. Movers crash and forget everything at any step.

   Asserted (I3): whenever the map goes on, no lease is more than one epoch behind. */
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
byte root = 0, owner = NONE, seen = 0;      /* owner: whose swap it was, as its token tells */
byte clock = 0, cseen = 0, waited = 0;
byte view[NC], grant[NC]; bool lease[NC];
byte late[NM] = NONE;                       /* the epoch from which a swap of this mover may yet be applied */
byte lateb[NM] = NONE;                      /* and the clock value from which a bump may */
byte lost = 0, crashes = 0;

inline neighbours() {                       /* within atomic */
  assert(!(lease[0] && view[0] + 1 < root) && !(lease[NC-1] && view[NC-1] + 1 < root))
}

proctype client(byte id) {
  byte n = 0, c, w; bool known = 0;
  do
  :: n < K && !lease[id] ->                 /* the clock first, then the root */
     atomic { n++; c = cseen; w = waited };
     atomic { view[id] = seen;              /* a wait that has ended since then was for a higher value: so this lease is over */
              if :: waited > w && waited > c -> skip :: else -> lease[id] = 1; grant[id] = c; known = 1; neighbours() fi; c = 0; w = 0 }
  :: n < K && !lease[id] && known ->         /* or the clock alone: as long as it shows no bump the root is the same */
     atomic { n++; c = cseen; w = waited };
     atomic { if :: c != grant[id] || (waited > w && waited > c) -> skip :: else -> lease[id] = 1; neighbours() fi; c = 0; w = 0 }
  :: lease[id] -> lease[id] = 0             /* it has seen a bump, or its time is over */
  :: n == K && !lease[id] -> break
  od
}

proctype replicas() {                       /* what comes late */
end: do
  :: seen < root -> seen = root
  :: cseen < clock -> cseen = clock
  :: atomic { late[0] != NONE -> if :: root == late[0] -> root++; owner = 0; neighbours()
#if defined(PROBE) && PROBE == 1
       ; assert(false)
#endif
       :: else fi; late[0] = NONE }
  :: atomic { lateb[0] != NONE -> if :: clock == lateb[0] -> clock++
#if defined(PROBE) && PROBE == 2
       ; assert(false)
#endif
       :: else fi; lateb[0] = NONE }
#if NM > 1
  :: atomic { late[1] != NONE -> if :: root == late[1] -> root++; owner = 1; neighbours() :: else fi; late[1] = NONE }
  :: atomic { lateb[1] != NONE -> if :: clock == lateb[1] -> clock++ :: else fi; lateb[1] = NONE }
#endif
  od
}

proctype mover(byte id) {
  byte p, v, mine, safe = NONE; bool ok, others;
  do
  :: root >= LAST || clock >= BUMPS -> break
  :: root < LAST && clock < BUMPS ->
     if :: crashes < CRASHES && safe != NONE -> crashes++; safe = NONE :: skip fi;
     p = root;
#ifdef BUG_OTHERS_BUMP
     v = clock;                             /* before its swap, and used after it */
#endif
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
        others = true;
        do
        :: clock >= BUMPS -> goto out
        :: clock > v -> mine = clock;       /* somebody's, or an own one that came late: it came after v was read */
#if defined(PROBE) && PROBE == 3
           assert(!others);
#endif
           break
        :: clock == v ->
           mine = clock;                    /* compare-and-swap from here */
           if
           :: atomic { clock == mine -> clock++; others = false }; mine++; break
           :: atomic { lost < LOST && clock == mine -> lost++; clock++; others = false }; mine++
#ifdef BUG_LOST_BUMP_DONE
              ; break
#endif
           :: atomic { lost < LOST && lateb[id] == NONE -> lost++; lateb[id] = mine; others = false }; mine++
#ifdef BUG_LOST_BUMP_DONE
              ; break
#endif
           :: clock != mine -> skip         /* a conflict */
           fi
        od;
#ifndef BUG_BUMP_UNACKNOWLEDGED
        cseen = clock;
#endif
#ifndef BUG_NO_WAIT
        atomic { !(lease[0] && grant[0] < mine) && !(lease[NC-1] && grant[NC-1] < mine) -> if :: waited < mine -> waited = mine :: else fi };
#endif
        safe = p
     fi;
     mine = 0; others = false;
#ifndef BUG_OTHERS_BUMP
     v = 0;
#endif
     ok = false;
     if                                     /* swap p to p + 1 */
     :: atomic { root == p && p < LAST -> root++; owner = id; neighbours() }; ok = true
     :: atomic { lost < LOST && root == p && p < LAST -> lost++; root++; owner = id; neighbours() }
#ifdef BUG_LOST_SWAP_DONE
        ; ok = true
#endif
     :: atomic { lost < LOST && late[id] == NONE && p < LAST -> lost++; late[id] = p }
#ifdef BUG_LOST_SWAP_DONE
        ; ok = true
#endif
     :: root != p || p >= LAST -> skip      /* a conflict */
     fi;
     if
     :: ok && p + 1 < LAST -> p++; ok = false; goto announce   /* known: its wait begins now */
     :: else                                /* unknown: look again, and wait anew */
     fi
  od;
out: skip
}

init { atomic { byte i = 0;
  do :: i < NC -> run client(i); i++ :: else -> break od; i = 0;
  do :: i < NM -> run mover(i); i++ :: else -> break od;
  run replicas(); i = 0 } }
