/* The row of one version while its range moves from partition A to B (spin model; run.sh beside this file). The phases are those of
   move.pml. What is new here: the timestamps of the writes of a row are given, not drawn. A write of rank r has the version's stamp
   plus r, also when it is sent long after a write of a higher rank, in a later phase, to a partition that never saw the other one.
     0 absent < 1 live < 2 kept < 3 burned < 4 removed: a tombstone (DEL), or while the range moves a marker (MARK)

   writer    the put (-DABSENT), or a cleaner that has read the row live, before all, and keeps it. It sends only while its lease is good and its
             deadline is not over; both are looked at in one step, under the lease. The write may land at any later time.
   cleaner   burns; once that is acknowledged, and every deadline that ran at the acknowledgement is over (the grace), it removes.
             Two of them may do so, the one beside the other.
   reader    by the rules of move.pml

   Asserted: what was acknowledged or shown stays, or something of a higher rank is shown. Nothing is shown live whose burning was
   acknowledged: its blob is deleted, or will be. Burned may be shown again after it was removed: then a cleaner removes it again.

   A lease runs out only once the root has moved on, and a deadline once somebody waits for it: before, its holder could as well have
   stood still. */
#ifndef NW
#define NW 1                  /* writers of one write each */
#endif
#ifndef NB
#define NB 1                  /* cleaners */
#endif
#ifndef RK
#define RK 2                  /* reads */
#endif
#ifndef MOVES
#define MOVES 1
#endif
#define LAST (5*MOVES)
#define STAGE(v) (v / 5)
#define SUB(v) (v % 5)        /* 0 settled, 1 marking, 2 copying, 3 verifying, 4 draining */
#define HOME(v) (STAGE(v) + (SUB(v) + 1) / 3)
#define LIVE 1
#define KEPT 2
#define BURNED 3
#define MARK 4
#define DEL 5                 /* of the same timestamp as MARK; a tombstone wins */
#define EMPTIED 6             /* removed by the mover, above all timestamps */
#define NC (NW+NB+1)
byte root = 0;
byte view[NC]; bool lease[NC];
byte P[MOVES+1], gone[MOVES+1]; bool copy[MOVES+1];   /* gone: the highest timestamp that was deleted of one row */
byte acked = 0;               /* the highest rank that was acknowledged or shown */
bool removing = 0;            /* a removal has begun */
bool runs[NW], over[NW], older[NW];   /* a writer's deadline runs, is over; ran when the burning was acknowledged */
byte left = NC;

inline raise(cell, r) { if :: cell < (r) -> cell = (r) :: else fi }
inline put(i, r, c) { d_step {
  if
  :: P[i] < (r) -> P[i] = (r); copy[i] = (c)
  :: P[i] == (r) && !(c) -> copy[i] = 0   /* at the same timestamp a copy loses */
  :: else
  fi } }
inline uncopy(i, r) { d_step { raise(gone[i], r) } }
#define seen(i) (P[i] >= DEL || P[i] <= gone[i] -> 0 : P[i])
#define lost_copy(i, r) (r > 0 && r < MARK && copy[i])

#define EXPIRES(i) :: lease[i] && view[i] < root -> lease[i] = 0
proctype world() {            /* any lease may run out at any moment, but with NO_EXPIRY; and any deadline */
end: do
#ifndef NO_EXPIRY
  EXPIRES(0)
  EXPIRES(1)
  EXPIRES(2)
#if NW+NB > 2
  EXPIRES(3)
#endif
#endif
  :: d_step { older[0] && !over[0] -> over[0] = 1 }
#if NW > 1
  :: d_step { older[1] && !over[1] -> over[1] = 1 }
#endif
  :: left == 0 -> break
  od
}
inline take_lease(id) { atomic { view[id] = root; lease[id] = 1 } }
inline drop_lease(id) { lease[id] = 0; view[id] = 0 }
inline acknowledge(id, r, ok) {  /* within atomic */
  if
  :: lease[id] || root == view[id] -> ok = true
  :: else -> ok = false
  fi;
  if :: ok -> raise(acked, r) :: else fi
}

/* what a read under the lease of id returns in r; 0 with ok false if the lease ended */
inline read(id, r, ok) {
  a = 0; b = 0;
  if
  :: SUB(view[id]) == 0 -> a = seen(STAGE(view[id]))
  :: SUB(view[id]) == 4 -> b = seen(STAGE(view[id])+1)
  :: SUB(view[id]) >= 1 && SUB(view[id]) <= 3 -> a = seen(STAGE(view[id])); atomic { b = seen(STAGE(view[id])+1); c = lost_copy(STAGE(view[id])+1, b) }
  :: SUB(view[id]) >= 1 && SUB(view[id]) <= 3 -> atomic { b = seen(STAGE(view[id])+1); c = lost_copy(STAGE(view[id])+1, b) }; a = seen(STAGE(view[id]))
  fi;
  if
  :: c && a < b ->
     a = seen(STAGE(view[id]));
     if :: a < b -> if :: SUB(view[id]) == 3 && lease[id] -> uncopy(STAGE(view[id])+1, b) :: else fi; b = 0 :: else fi
  :: else
  fi;
  if
  :: SUB(view[id]) == 3 && a > b && lease[id] ->
     put(STAGE(view[id])+1, a, 1);
     if :: a < MARK && seen(STAGE(view[id])) < a -> if :: lease[id] -> uncopy(STAGE(view[id])+1, a) :: else fi :: else fi
  :: else
  fi;
  atomic { r = (a > b -> a : b); ok = lease[id]; a = 0; b = 0; c = 0 }
}
#define GOOD(id) (lease[id] && !over[id])

proctype writer(byte id) {
  byte rank; bool ok;
  rank = (acked == 0 -> LIVE : KEPT);
  if
  :: rank > 0 ->
#ifdef BUG_DEADLINE_BEFORE_LEASE
     if :: over[id] -> rank = 0 :: else fi;
#endif
     take_lease(id);
     if
#if defined(BUG_NO_DEADLINE) || defined(BUG_DEADLINE_BEFORE_LEASE)
     :: rank > 0 && lease[id] ->
#else
     :: GOOD(id) ->
#endif
        put(HOME(view[id]), rank, 0);
        atomic { acknowledge(id, rank, ok) }
     :: else
     fi
  :: else
  fi;
  d_step { runs[id] = 0; over[id] = 0; older[id] = 0; rank = 0; ok = 0; drop_lease(id); left-- }
}

#if NW > 1
#define WAITS (runs[0] && older[0] && !over[0] || runs[1] && older[1] && !over[1])
#else
#define WAITS (runs[0] && older[0] && !over[0])
#endif
proctype cleaner(byte id) {
  bool ok; byte i;
  take_lease(id);
  if
  :: lease[id] ->
     put(HOME(view[id]), BURNED, 0);
     atomic { acknowledge(id, BURNED, ok);
       i = 0; do :: ok && i < NW -> older[i] = older[i] || runs[i]; i++ :: else -> break od; i = 0; drop_lease(id) }
  :: else
  fi;
  if
  :: ok ->
#ifndef BUG_NO_GRACE
     !WAITS;
#endif
     take_lease(id);
     if
     :: lease[id] ->
        removing = 1;
#ifdef BUG_PLAIN_REMOVAL
        put(HOME(view[id]), DEL, 0)
#else
        put(HOME(view[id]), (SUB(view[id]) == 0 -> DEL : MARK), 0)
#endif
     :: else
     fi
  :: else
  fi;
  d_step { drop_lease(id); ok = 0; left-- }
}

proctype reader(byte id) {
  byte n = 0, r, lo, a, b; bool c, ok;
  do
  :: n == RK -> break
  :: n < RK -> n++;
     atomic { view[id] = root; lease[id] = 1; lo = acked };
     read(id, r, ok);
     atomic {
       if
       :: ok ->
          if
          :: r > 0 && r < MARK -> assert(r >= lo); raise(acked, r)
          :: else -> assert(lo == 0 || removing)
          fi
       :: else
       fi;
       drop_lease(id); r = 0; lo = 0; ok = 0 }
  od;
  left--
}

#if NW+NB > 2
#define STILL(e) (lease[0] && view[0] < e || lease[1] && view[1] < e || lease[2] && view[2] < e || lease[3] && view[3] < e)
#else
#define STILL(e) (lease[0] && view[0] < e || lease[1] && view[1] < e || lease[2] && view[2] < e)
#endif
proctype mover() {
  byte p, r; bool c;
end: do
  :: root == LAST -> break
  :: left == 0 -> break
  :: atomic { root < LAST && left > 0 && !STILL(root) -> p = root };   /* nobody acts on an older phase */
     if
     :: SUB(p) == 0 && p > 0 ->   /* sweep */
        r = P[STAGE(p)]; if :: r == MARK -> uncopy(STAGE(p), MARK) :: else fi
     :: SUB(p) == 2 -> r = seen(STAGE(p)); if :: r > 0 -> put(STAGE(p)+1, r, 1) :: else fi
     :: SUB(p) == 3 ->
        r = seen(STAGE(p));
        if :: r > 0 -> put(STAGE(p)+1, r, 1); if :: r < MARK && seen(STAGE(p)) < r -> uncopy(STAGE(p)+1, r) :: else fi :: else fi;
        atomic { r = seen(STAGE(p)+1); c = lost_copy(STAGE(p)+1, r) };
        if
        :: c -> if
                :: seen(STAGE(p)) < r -> uncopy(STAGE(p)+1, r)
                :: seen(STAGE(p)) > r -> r = seen(STAGE(p)); if :: r > 0 -> put(STAGE(p)+1, r, 1) :: else fi
                :: else
                fi
        :: else
        fi
     :: SUB(p) == 4 -> d_step { P[STAGE(p)] = EMPTIED; gone[STAGE(p)] = 0; copy[STAGE(p)] = 0 }
     :: else
     fi;
     d_step { root = p + 1; r = 0; c = 0; p = 0 }
  od
}
#ifdef PROBE                  /* must be reachable */
proctype probe() {
  if
  :: PROBE == 1 && P[0] == EMPTIED && P[1] == KEPT && !copy[1] -> assert(false)      /* kept in B, by a decision made in A */
  :: PROBE == 2 && SUB(root) == 3 && P[0] == BURNED && P[1] == MARK -> assert(false)   /* removed in B, of what was burned in A */
  :: PROBE == 3 && P[0] == EMPTIED && P[1] == BURNED && removing && seen(1) == BURNED && acked == BURNED -> assert(false)
  fi
}
#endif
init { atomic { byte i = 0;
#ifndef ABSENT
  P[0] = LIVE; acked = LIVE;
#endif
  do :: i < NW -> runs[i] = 1; run writer(i); i++ :: else -> break od;
  do :: i < NW+NB -> run cleaner(i); i++ :: else -> break od;
  run reader(i);
  run mover(); run world();
#ifdef PROBE
  run probe();
#endif
  i = 0 } }
