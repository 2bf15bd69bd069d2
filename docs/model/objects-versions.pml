/* A bucket with versions in two data centres: users delete versions by id while a rule expires noncurrent ones (spin model; run.sh
   beside this file). One key with three versions; one of them may arrive late: a new one, or an upload, whose stamp is old. Ranks,
   timestamps and quorums as in objects.pml:
     1 live < 2 kept < 3 burned < 4 removed
   A version has expired once the days of the rule are over since the stamp of the next newer one that is seen, and at least NEWER
   more are seen above that.
   clock: versions up to it are older than the days: whoever deletes now sees what is right below them as expired
   margin: older than the days and a margin, longer than the deadline of a delete: cleaners see it, too
   delete     at LOCAL_QUORUM: reads the group; burns what has expired below the version, the oldest first; then, acknowledged, the
              version. So what has expired never becomes current.
   cleaner    at EACH_QUORUM: expires a version that is live or kept: writes the next newer one kept, and the one by which there are
              enough above; acknowledged? burns it.
              burns again what somebody has begun to burn; acknowledged, and the grace over: deletes the blob, removes the row

   Asserted: a version whose deletion was acknowledged in a data centre is not seen there; what is seen has its blob until the stream
   ends. What was seen as the newest version in a data centre stays until there is a newer one, or a user deletes it, or finds it
   expired; and what he has found expired is never seen as the newest there. (Not where a delete has an unknown outcome.) In the
   end, when all days are over, the newest version is there with NEWER more at most, and nothing else: also of those that were kept.

   Steps of one process that no other one can tell apart are one step. */
#ifndef ND
#define ND 2                  /* deletes; the first in data centre 0, the second in 1 */
#endif
#ifndef NCL
#define NCL 1                 /* cleaners */
#endif
#ifndef LOST
#define LOST 1                /* unknown outcomes */
#endif
#ifndef RK
#define RK 2                  /* reads */
#endif
#ifndef NEWER
#define NEWER 0               /* noncurrent versions that stay whatever their days */
#endif
#ifndef ABSENT
#define ABSENT 0              /* the version that comes late, or never: 3 a new one, 2 an upload, 0 none */
#endif
#ifndef START
#define START 0               /* clock and margin at the beginning */
#endif
#define N 3
#define MAX(a, b) ((a) > (b) -> (a) : (b))
#define at(d, v) ((d)*(N+1) + (v))
#define KEPT 2
#define BURNED 3
#define REMOVED 4
#define LIVE(r) ((r) == 1 || (r) == 2)
#define both(v) MAX(Q[at(0, v)], Q[at(1, v)])
byte Q[2*N+2], F[2*N+2];      /* as in objects.pml */
byte blob[N+1], proof[N+1];
byte clock = START, margin = START;
byte absent = ABSENT;         /* the version that has not come yet */
byte decided[ND];             /* the clock when delete i read the group */
bool early[ND], over[ND];     /* it runs, and its deadline is not over; it is over */
bool without[ND];             /* it has read the group before the last version came */
bool asked[N+1];              /* a user asked to delete it, or found it expired */
bool found[2*N+2];            /* he found it expired in the data centre */
bool done[2*N+2];             /* its deletion was acknowledged in the data centre */
byte seen[2];                 /* the newest version that was last read in the data centre, if no newer one has come there since */
bool late = 0;                /* a delete has an unknown outcome */
byte lost = LOST, reads = 0, left = ND + NCL + 1 + (ABSENT > 0);
bool streams = 0, streamed = 0;

inline raise(cell, r) { if :: cell < (r) -> cell = (r) :: else fi }
inline lands(d, v, r) {       /* what is newer may let older ones expire */
  if :: Q[at(d, v)] == 0 && (r) <= KEPT && (v) > seen[d] -> seen[d] = 0 :: else fi;
  raise(Q[at(d, v)], r)
}
inline tidy(v) {
  if :: F[at(0, v)] <= Q[at(0, v)] -> F[at(0, v)] = 0 :: else fi;
  if :: F[at(1, v)] <= Q[at(1, v)] -> F[at(1, v)] = 0 :: else fi
}
inline unknown(v, r) { raise(F[at(0, v)], r); raise(F[at(1, v)], r); tidy(v); lost-- }
inline write_local(d, v, r) { lands(d, v, r); raise(F[at(1-(d), v)], r); tidy(v) }
inline write_each(v, r, ok) {
  if
  :: d_step { lands(0, v, r); lands(1, v, r); tidy(v); ok = true }
  :: d_step { lost > 0 -> unknown(v, r); ok = false }
  fi
}
inline read_each(v, x) {
  if
  :: x = both(v)
  :: F[at(0, v)] > both(v) -> x = F[at(0, v)]
  :: F[at(1, v)] > both(v) -> x = F[at(1, v)]
  fi
}
#define EACH(m) m(1) m(2) m(3)
#define LANDS(v) \
  :: d_step { F[at(0, v)] -> lands(0, v, F[at(0, v)]); F[at(0, v)] = 0 } \
  :: d_step { F[at(1, v)] -> lands(1, v, F[at(1, v)]); F[at(1, v)] = 0 }
#ifdef BUG_NO_MARGIN
#define YOUNG(i) false
#else
#define YOUNG(i) (early[i] && decided[i] <= margin)
#endif
proctype world() {
end: do
  EACH(LANDS)
  :: d_step { clock < N -> clock++ }
  :: d_step { margin < clock && !YOUNG(0) && !YOUNG(ND-1) -> margin++ }
  :: d_step { early[0] -> early[0] = 0; over[0] = 1 }
#if ND > 1
  :: d_step { early[1] -> early[1] = 0; over[1] = 1 }
#endif
  :: d_step { streams && !streamed -> streamed = 1 }
  :: left == 0 -> break
  od
}

proctype writer() {           /* of the version that is late */
  bool d;
  if
  :: absent > 0 ->
     if :: d = 0 :: d = 1 fi;
     d_step { blob[absent] = 1; write_local(d, absent, 1); d = 0; absent = 0 }
  :: true
  fi;
  left--
}

#define PICKS(v) :: LIVE(Q[at(i, v)]) -> t = v
inline burn_local(v) {
  if
  :: d_step { !over[i] -> write_local(i, v, BURNED) }
  :: d_step { lost > 0 && !over[i] -> unknown(v, BURNED); late = 1; ok = false }
  :: over[i] -> ok = false
  fi
}
proctype deleter(byte i) {    /* its number is that of its data centre */
  byte t, s, x, n; bool ok = true, b1, b2;
  atomic {
    if EACH(PICKS) :: t = 0 fi;
    if
    :: t > 0 ->
       decided[i] = clock; early[i] = 1; asked[t] = 1; without[i] = (Q[at(i, ABSENT)] == 0);
       s = 0; n = 0; x = N;   /* s is the next newer one that is seen, n how many are above that */
       do
       :: x == 0 -> break
       :: x > 0 ->
          if
          :: LIVE(Q[at(i, x)]) ->
             if
#ifndef BUG_EXPIRED_IS_LEFT
             :: s > 0 && x < t && s <= clock && n >= NEWER ->
                asked[x] = 1; found[at(i, x)] = 1;
                if :: x == 1 -> b1 = 1 :: else -> b2 = 1 fi
#endif
             :: else
             fi;
             if :: s > 0 -> n++ :: else fi; s = x
          :: else
          fi; x--
       od; s = 0; x = 0; n = 0
    :: else
    fi };
  if
  :: t > 0 ->
#ifdef BUG_NEWEST_FIRST
     burn_local(t);
#endif
     if :: b1 && ok -> burn_local(1) :: else fi;
     if :: b2 && ok -> burn_local(2) :: else fi;
#ifndef BUG_NEWEST_FIRST
     if :: ok -> burn_local(t) :: else fi;
#endif
     d_step {
       if :: ok && !over[i] -> done[at(i, t)] = 1 :: else fi;
       early[i] = 0; over[i] = 0; without[i] = 0; decided[i] = 0 }
  :: else
  fi;
  d_step { t = 0; ok = 0; b1 = 0; b2 = 0; left-- }
}

#define STAYS(v) assert(!(done[at(d, v)] && LIVE(Q[at(d, v)])));
#define SEES(v) :: LIVE(Q[at(d, v)]) -> s = v
proctype reader() {
  byte n = 0, s; bool d;
  do
  :: n == RK -> break
  :: n < RK -> n++;
     atomic {
       if :: d = 0 :: d = 1 fi;
       reads++;
       EACH(STAYS)
       s = N; do :: s > 0 && !LIVE(Q[at(d, s)]) -> s-- :: else -> break od;
       assert(late || s >= seen[d] || asked[seen[d]]);
       assert(late || !found[at(d, s)]);
       seen[d] = s;
       if EACH(SEES) :: s = 0 fi;
       d = 0;
       if :: s > 0 -> assert(blob[s] == 1); streams = 1 :: else fi };
     d_step { if :: streams && !streamed -> assert(blob[s] == 1) :: else fi; streams = 0; streamed = 0; s = 0 }
  od;
  left--
}

#ifdef BUG_NO_GRACE
#define GRACE(v) true
#else
#define GRACE(v) (!streams || streamed || reads >= proof[v])
#endif
#define HALF(v) (!proof[v] && (both(v) == BURNED || F[at(0, v)] == BURNED || F[at(1, v)] == BURNED))
#define DUE(v) (proof[v] && GRACE(v) && (blob[v] == 1 || Q[at(0, v)] != REMOVED || Q[at(1, v)] != REMOVED))
#ifdef BUG_COUNT_AT_ONCE
#define SETTLED(v) true
#else
#define SETTLED(v) ((v) != ABSENT || !(early[0] && without[0] || early[ND-1] && without[ND-1]))
#endif
#ifdef BUG_KEPT_STAYS
#define MAY(x) ((x) == 1)
#else
#define MAY(x) LIVE(x)
#endif
#define MARGINS (SETTLED(s) && (NEWER == 0 || SETTLED(q)))   /* of an upload: docs/objects.md, what is assumed */
/* p: the next newer one that is seen; q: the one by which there are NEWER above that; o: the one right above p */
inline expire(any, ok) {
  atomic {
    p = 0; q = 0; o = 0; s = N; n = 0;
    do
    :: s == 0 -> p = 0; break
    :: s > 0 -> read_each(s, x);
       if
       :: MAY(x) && p && p <= margin && n >= NEWER && MARGINS -> break
       :: MAY(x) && p && p <= margin && n >= NEWER && MARGINS && any && s > 1 -> skip   /* or an older one */
       :: else
       fi;
       if :: LIVE(x) -> if :: p -> n++ :: else fi; o = p; p = s; q = (NEWER -> o : p) :: else fi; s--
    od; x = 0; n = 0; o = 0 };
  if
  :: p > 0 ->
     ok = true;
#ifdef BUG_KEEP_NEWEST
     p = N; do :: p > s && !LIVE(both(p)) -> p-- :: else -> break od; q = p;
#endif
#ifndef BUG_NO_KEEP
     write_each(p, KEPT, ok);
#ifndef BUG_COUNTED_UNKEPT
     if :: ok && q != p -> write_each(q, KEPT, ok) :: else fi;
#endif
#endif
#ifdef BUG_KEEP_UNACKNOWLEDGED
     ok = true;
#endif
     if :: ok -> write_each(s, BURNED, ok) :: else fi
  :: else
  fi;
  d_step { p = 0; q = 0; s = 0; ok = 0 }
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
  byte p, q, o, s, x, n; bool ok;
  do
  :: margin > 0 -> expire(true, ok)
  EACH(TASKS)
  :: break
  od;
  left--
}

#define SETTLES(v) \
  if :: F[at(0, v)] -> lands(0, v, F[at(0, v)]) :: true fi; \
  if :: F[at(1, v)] -> lands(1, v, F[at(1, v)]) :: true fi; \
  F[at(0, v)] = 0; F[at(1, v)] = 0;                                       /* they land, or are lost */
#define CLEANS(v) if :: HALF(v) -> prove(v, ok) :: else fi; if :: DUE(v) -> finish(v, ok) :: else fi;
#define ENDS(v) assert(LIVE(both(v)) == (blob[v] == 1)); if :: LIVE(both(v)) -> n++ :: else fi;
proctype final() {
  byte p, q, o, s, x, n, round; bool ok;
  left == 0;
  atomic {
    EACH(SETTLES)
    lost = 0;
    s = N; do :: s > 0 && both(s) == 0 -> s-- :: else -> break od;
    assert(asked[s] || LIVE(both(s)));
    s = N; do :: s > 0 && !LIVE(both(s)) -> s-- :: else -> break od;
    assert(late || (s >= seen[0] || asked[seen[0]]) && (s >= seen[1] || asked[seen[1]]));
    clock = N; margin = N; round = 0; s = 0;
    do :: round == 6 -> break
       :: round < 6 -> round++; expire(false, ok); EACH(CLEANS)
    od;
    n = 0;
    EACH(ENDS)
    assert(n <= NEWER + 1);
  }
}
#ifdef PROBE                  /* must be reachable */
proctype probe() {
  if
  :: PROBE == 1 && blob[2] == 2 && !asked[2] && LIVE(Q[at(0, 3)]) && done[at(0, 1)] -> assert(false)   /* expired, beside a delete */
  :: PROBE == 2 && done[at(0, 3)] && found[at(0, 1)] && LIVE(Q[at(0, 2)]) -> assert(false)   /* uncovered; the one below found expired */
  fi
}
#endif
init { atomic { byte i = 1;
  do :: i <= N -> Q[at(0, i)] = 1; Q[at(1, i)] = 1; blob[i] = 1; i++ :: else -> break od;
  i = ABSENT;
  if :: i > 0 -> Q[at(0, i)] = 0; Q[at(1, i)] = 0; blob[i] = 0 :: else fi;
  i = 0; do :: i < ND -> run deleter(i); i++ :: else -> break od;
  i = 0; do :: i < NCL -> run cleaner(); i++ :: else -> break od;
#if ABSENT
  run writer();
#endif
  run reader(); run world(); run final();
#ifdef PROBE
  run probe();
#endif
  i = 0 } }
