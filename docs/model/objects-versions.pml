/* A bucket with versions in two data centres: users delete versions by id while a rule expires noncurrent ones (spin model; run.sh
   beside this file). One key with three versions, all acknowledged and replicated. Ranks, timestamps and quorums as in objects.pml:
     1 live < 2 kept < 3 burned < 4 removed
   clock: 0  the noncurrent versions are within the days of the rule
          1  they are beyond: whoever deletes now sees them as expired
          2  a margin later, longer than the deadline of a delete: cleaners see them as expired, too
   delete     at LOCAL_QUORUM: reads the group; keeps the next older version if that has not expired, and only then, acknowledged,
              burns the version; with it the older ones that have expired. So what has expired never becomes current. The days of
              what is kept begin again.
   cleaner    at EACH_QUORUM: expires a live version below c, the newest visible one: writes c kept; acknowledged? burns the other.
              burns again what somebody has begun to burn; acknowledged, and the grace over: deletes the blob, removes the row

   Asserted: a version whose deletion was acknowledged in a data centre is not seen there; what is seen has its blob until the stream
   ends. In the end what an acknowledged delete has kept, and the newest version, are there unless somebody asked to delete them;
   and every visible version has its blob, and nothing else has.

   Three versions are in two deletes, each of one of them; older ones would only repeat them. Steps of one process that no other one
   can tell apart are one step. */
#ifndef ND
#define ND 2                  /* deletes; the first in data centre 0, the second in 1 */
#endif
#ifndef NCL
#define NCL 1                 /* cleaners */
#endif
#ifndef LOST
#define LOST 1                /* unknown outcomes */
#endif
#define N 3
#define MAX(a, b) ((a) > (b) -> (a) : (b))
#define at(d, v) ((d)*(N+1) + (v))
#define KEPT 2
#define BURNED 3
#define REMOVED 4
#define LIVE(r) ((r) == 1 || (r) == 2)
#define both(v) MAX(Q[at(0, v)], Q[at(1, v)])
byte Q[2*N+2], F[2*N+2];      /* F: writes of cleaners on their way */
byte keeps[ND];               /* the version that delete i keeps */
bool burns[ND*(N+1)];         /* the versions that it burns */
bool wayk[2*ND], wayb[2*ND];  /* its keep, and its burning, are on their way to data centre d: [2*i+d] */
byte blob[N+1], proof[N+1];
byte clock = 0;
bool early[ND], over[ND];     /* delete i has decided at clock 0 and runs; its deadline is over */
bool asked[N+1], kept[N+1];   /* a user asked to delete it, or found it expired; an acknowledged delete has kept it */
bool done[2*N+2];             /* its deletion was acknowledged in the data centre */
byte lost = LOST, reads = 0, left = ND + NCL + 1;
bool streams = 0, streamed = 0;

inline raise(cell, r) { if :: cell < (r) -> cell = (r) :: else fi }
inline land_keep(who, dc) { raise(Q[at(dc, keeps[who])], KEPT); wayk[2*(who)+dc] = 0 }
inline land_burn(who, dc) {
  if :: burns[at(who, 1)] -> raise(Q[at(dc, 1)], BURNED) :: else fi;
  if :: burns[at(who, 2)] -> raise(Q[at(dc, 2)], BURNED) :: else fi;
  if :: burns[at(who, 3)] -> raise(Q[at(dc, 3)], BURNED) :: else fi;
  wayb[2*(who)+dc] = 0
}
inline write_each(v, r, ok) {
  if
  :: d_step { raise(Q[at(0, v)], r); raise(Q[at(1, v)], r); ok = true }
  :: d_step { lost > 0 -> lost--; raise(F[at(0, v)], r); raise(F[at(1, v)], r); ok = false }
  fi
}
inline read_each(v, x) {
  if
  :: x = both(v)
  :: (wayk[0] || wayk[1]) && keeps[0] == v && both(v) == 1 -> x = KEPT
  :: (wayb[0] || wayb[1]) && burns[at(0, v)] && both(v) < BURNED -> x = BURNED
#if ND > 1
  :: (wayk[2] || wayk[3]) && keeps[1] == v && both(v) == 1 -> x = KEPT
  :: (wayb[2] || wayb[3]) && burns[at(1, v)] && both(v) < BURNED -> x = BURNED
#endif
  :: F[at(0, v)] > both(v) || F[at(1, v)] > both(v) -> x = MAX(F[at(0, v)], F[at(1, v)])
  fi
}
#define EACH(m) m(1) m(2) m(3)
#define LANDS(v) \
  :: d_step { F[at(0, v)] -> raise(Q[at(0, v)], F[at(0, v)]); F[at(0, v)] = 0 } \
  :: d_step { F[at(1, v)] -> raise(Q[at(1, v)], F[at(1, v)]); F[at(1, v)] = 0 }
#define DELIVERS(i, d) \
  :: d_step { wayk[2*(i)+d] -> land_keep(i, d) } \
  :: d_step { wayb[2*(i)+d] -> land_burn(i, d) }
proctype world() {
end: do
  EACH(LANDS)
  DELIVERS(0, 0) DELIVERS(0, 1)
#if ND > 1
  DELIVERS(1, 0) DELIVERS(1, 1)
#endif
  :: d_step { clock == 0 -> clock = 1 }
#ifdef BUG_NO_MARGIN
  :: d_step { clock == 1 -> clock = 2 }
#else
  :: d_step { clock == 1 && !early[0] && !early[ND-1] -> clock = 2 }
#endif
  :: d_step { early[0] -> early[0] = 0; over[0] = 1 }
#if ND > 1
  :: d_step { early[1] -> early[1] = 0; over[1] = 1 }
#endif
  :: d_step { streams && !streamed -> streamed = 1 }
  :: left == 0 -> break
  od
}

#define PICKS(v) :: LIVE(Q[at(i, v)]) -> t = v
proctype deleter(byte i) {    /* its number is that of its data centre */
  byte t, n; bool ok, soon;
  atomic {
    if EACH(PICKS) :: t = 0 fi;
    soon = (clock == 0);
    if
    :: t > 0 ->
       early[i] = soon;
       n = t - 1; do :: n > 0 && !LIVE(Q[at(i, n)]) -> n-- :: else -> break od;
       burns[at(i, t)] = 1; asked[t] = 1;
#ifndef BUG_NOTHING_KEPT
       if
       :: n > 0 && soon -> keeps[i] = n
#ifndef BUG_EXPIRED_IS_LEFT
       :: n > 0 && !soon && Q[at(i, n)] == 1 ->
          burns[at(i, n)] = 1; asked[n] = 1;
          if :: n == 2 && Q[at(i, 1)] == 1 -> burns[at(i, 1)] = 1; asked[1] = 1 :: else fi
#endif
       :: else
       fi
#endif
    :: else
    fi };
  if
  :: t > 0 ->
     ok = true;
#ifdef BUG_BURN_FIRST
     d_step { raise(Q[at(i, t)], BURNED) };
#endif
     if
     :: keeps[i] > 0 ->
        if
        :: d_step { wayk[2*i+1-i] = 1; land_keep(i, i) }
        :: d_step { lost > 0 -> lost--; wayk[2*i] = 1; wayk[2*i+1] = 1; ok = false }
        fi
     :: else
     fi;
#ifdef BUG_KEEP_UNACKNOWLEDGED
     ok = true;
#endif
     if
     :: ok ->
        if
        :: d_step { wayb[2*i+1-i] = 1; land_burn(i, i) }
        :: d_step { lost > 0 -> lost--; wayb[2*i] = 1; wayb[2*i+1] = 1; ok = false }
        fi
     :: else
     fi;
     d_step {
       if
       :: ok && !over[i] -> done[at(i, t)] = 1; if :: n > 0 && soon -> kept[n] = 1 :: else fi
       :: else
       fi;
       early[i] = 0; over[i] = 0; t = 0; n = 0; ok = 0 }
  :: else
  fi;
  d_step { soon = 0; left-- }
}

#define STAYS(v) assert(!(done[at(d, v)] && LIVE(Q[at(d, v)])));
#define SEES(v) :: LIVE(Q[at(d, v)]) -> s = v
proctype reader() {
  byte s; bool d;
  atomic {
    if :: d = 0 :: d = 1 fi;
    reads++;
    EACH(STAYS)
    if EACH(SEES) :: s = 0 fi;
    d = 0;
    if :: s > 0 -> assert(blob[s] == 1); streams = 1 :: else fi };
  d_step { if :: streams && !streamed -> assert(blob[s] == 1) :: else fi; streams = 0; streamed = 0; s = 0; left-- }
}

#ifdef BUG_NO_GRACE
#define GRACE(v) true
#else
#define GRACE(v) (!streams || streamed || reads >= proof[v])
#endif
#define HALF(v) (!proof[v] && (both(v) == BURNED || F[at(0, v)] == BURNED || F[at(1, v)] == BURNED))
#define DUE(v) (proof[v] && GRACE(v) && (blob[v] == 1 || Q[at(0, v)] != REMOVED || Q[at(1, v)] != REMOVED))
inline expire(ok) {
  atomic {
    c = 0; s = N;
    do
    :: s == 0 -> c = 0; break
    :: s > 0 -> read_each(s, x);
       if
       :: LIVE(x) && !c -> c = s
#ifdef BUG_KEPT_EXPIRES
       :: LIVE(x) && c > s -> break
#else
       :: x == 1 && c > s -> break
#endif
       :: else
       fi; s--
    od; x = 0 };
  if
  :: c > 0 -> write_each(c, KEPT, ok); if :: ok -> write_each(s, BURNED, ok) :: else fi
  :: else
  fi;
  d_step { c = 0; s = 0; ok = 0 }
}
inline prove(v, ok) {
  atomic {
#ifdef BUG_PROOF_LOCAL
    ok = (both(v) == BURNED);
#else
    write_each(v, BURNED, ok);
#endif
    if :: ok -> proof[v] = reads + 1 :: else fi; ok = 0 }
}
inline finish(v, ok) {
  if :: d_step { blob[v] == 1 -> blob[v] = 2 } :: else fi;
  atomic { write_each(v, REMOVED, ok); ok = 0 }
}
#define TASKS(v) \
  :: HALF(v) -> prove(v, ok) \
  :: DUE(v) -> finish(v, ok)
proctype cleaner() {
  byte c, s, x; bool ok;
  do
  :: clock == 2 -> expire(ok)
  EACH(TASKS)
  :: break
  od;
  left--
}

#define DELIVERED(i, d) if :: wayk[2*(i)+d] -> land_keep(i, d) :: else fi; if :: wayb[2*(i)+d] -> land_burn(i, d) :: else fi;
#define KEEPS(v) assert(!kept[v] || asked[v] || LIVE(both(v)));
#define CLEANS(v) if :: HALF(v) -> prove(v, ok) :: else fi; if :: DUE(v) -> finish(v, ok) :: else fi;
#define ENDS(v) assert(LIVE(both(v)) == (blob[v] == 1));
proctype final() {
  byte c, s, x, round; bool ok;
  left == 0;
  atomic {
    DELIVERED(0, 0) DELIVERED(0, 1)
#if ND > 1
    DELIVERED(1, 0) DELIVERED(1, 1)
#endif
    s = 0; do :: s < 2*N+2 -> F[s] = 0; s++ :: else -> break od; s = 0;   /* or they are lost */
    lost = 0;
    EACH(KEEPS)
    assert(asked[3] || LIVE(both(3)));
    clock = 2; round = 0;
    do :: round == 6 -> break
       :: round < 6 -> round++; expire(ok); EACH(CLEANS)
    od;
    EACH(KEEPS)
    EACH(ENDS)
  }
}
#ifdef PROBE                  /* must be reachable */
proctype probe() {
  if
  :: PROBE == 1 && kept[2] && LIVE(Q[at(0, 2)]) && blob[1] == 2 -> assert(false)      /* uncovered and kept; the one below expired and freed */
  :: PROBE == 2 && ND > 1 && kept[1] && kept[2] -> assert(false)                      /* two deletes, one after the other */
  fi
}
#endif
init { atomic { byte i = 1;
  do :: i <= N -> Q[at(0, i)] = 1; Q[at(1, i)] = 1; blob[i] = 1; i++ :: else -> break od;
  i = 0; do :: i < ND -> run deleter(i); i++ :: else -> break od;
  i = 0; do :: i < NCL -> run cleaner(); i++ :: else -> break od;
  run reader(); run world(); run final();
#ifdef PROBE
  run probe();
#endif
  i = 0 } }
