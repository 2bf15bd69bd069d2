/* The versions of one key in two data centres, their blobs, and cleaners (spin model; run.sh beside this file). Only the newest
   version counts: a bucket that was never versioned, or the null versions of a suspended one. docs/objects.md has the rules.

   One row per version, no pointer. A row has a rank, and its timestamp is the version's stamp plus the rank, whoever writes it and
   whenever. So the newest write of a row is the one with the highest rank, in any order of arrival:
     0 absent < 1 live < 2 kept (live; others rely on it) < 3 burned < 4 removed (a tombstone)
   A note beside a row says that its blob is suspected to have no row. The blob tells the stamp here, as the claims of an upload do;
   objects-put-end.pml has blobs that do not.

   at(d, v) of Q is what a quorum of data centre d has; of F, what is on single replicas, in hints or on its way: it comes to the
   quorum at any time, or never. A write at LOCAL_QUORUM is acknowledged when Q has it in one data centre, at EACH_QUORUM in both;
   any may have an unknown outcome instead (LOST of them). F that stays is a cut between the data centres, of any length.

   Asserted: a reader sees what was acknowledged in its data centre, or newer; the blob of what it sees is there until its stream
   ends. In the end, once everything has landed or is lost, a cleaner leaves the blob of the newest version and no other.

   What keeps the search small, and why nothing is lost by it:
   - F that can't win any more is zeroed; so are locals between two rounds.
   - Reading several rows is one step where nothing is decided from the difference. */
#ifndef N
#define N 2                   /* stamps */
#endif
#ifndef NW
#define NW 2                  /* writers of one operation each: even ones in data centre 0, odd ones in 1 */
#endif
#ifndef NCL
#define NCL 1                 /* cleaners */
#endif
#ifndef RK
#define RK 1                  /* reads */
#endif
#ifndef LOST
#define LOST 2                /* unknown outcomes and crashes */
#endif
#define PUT 1
#define MARKER 2              /* a delete marker */
#define KEPT 2
#define BURNED 3
#define REMOVED 4
#define LIVE(r) ((r) == 1 || (r) == 2)
#define MAX(a, b) ((a) > (b) -> (a) : (b))
#define at(d, v) ((d)*(N+1) + (v))
#define both(v) MAX(Q[at(0, v)], Q[at(1, v)])
byte kind[N+1], Q[2*N+2], F[2*N+2];
byte blob[N+1];               /* 0 none, 1 there, 2 deleted */
bool lateblob[N+1];           /* a blob whose writer is gone may still land */
bool over[N+1], ended[N+1];   /* the deadline of the put is over; its writer has ended */
byte note[N+1];               /* 0 none, 1 of unknown outcome, 2 acknowledged at EACH_QUORUM */
byte proof[N+1];              /* 1 + the number of reads that had begun when the burning was acknowledged; for all cleaners */
byte acked[2], cleared;        /* the highest acknowledged by data centre; the highest marker that was removed */
byte lost = LOST, reads = 0, left = NW + NCL + 1;
bool streams = 0, streamed = 0;   /* a stream is under way; it has taken longer than the grace */

inline raise(cell, r) { if :: cell < (r) -> cell = (r) :: else fi }
#ifdef BUG_FRESH_TIMESTAMPS   /* the timestamp is the time of the write: by clocks that differ, a live row may win over a burned one */
#define BEATS(f, q) ((f) > (q) || (f) == 1 && (q) == BURNED)
#else
#define BEATS(f, q) ((f) > (q))
#endif
inline tidy(v) {
  if :: F[at(0, v)] && !BEATS(F[at(0, v)], Q[at(0, v)]) -> F[at(0, v)] = 0 :: else fi;
  if :: F[at(1, v)] && !BEATS(F[at(1, v)], Q[at(1, v)]) -> F[at(1, v)] = 0 :: else fi
}
inline unknown(v, r, ok) { raise(F[at(0, v)], r); raise(F[at(1, v)], r); tidy(v); ok = false; lost-- }
inline write_local(d, v, r, ok) {
  if
  :: d_step { raise(Q[at(d, v)], r); raise(F[at(1-d, v)], r); tidy(v); ok = true }
  :: d_step { lost > 0 -> unknown(v, r, ok) }
  fi
}
inline write_each(v, r, ok) {
  if
  :: d_step { raise(Q[at(0, v)], r); raise(Q[at(1, v)], r); tidy(v); ok = true }
  :: d_step { lost > 0 -> unknown(v, r, ok) }
  fi
}
inline read_each(v, x) {      /* sees what a quorum has, and perhaps what a single replica has */
  if
  :: x = both(v)
  :: F[at(0, v)] > both(v) -> x = F[at(0, v)]
  :: F[at(1, v)] > both(v) -> x = F[at(1, v)]
  fi
}
inline read_note(v, x) { if :: x = (note[v] == 2) :: note[v] == 1 -> x = 1 fi }

#define EACH2(m) m(1) m(2)
#if N > 2
#define EACH(m) EACH2(m) m(3)
#else
#define EACH(m) EACH2(m)
#endif
#define LANDS(v) \
  :: d_step { BEATS(F[at(0, v)], Q[at(0, v)]) -> Q[at(0, v)] = F[at(0, v)]; F[at(0, v)] = 0 } \
  :: d_step { BEATS(F[at(1, v)], Q[at(1, v)]) -> Q[at(1, v)] = F[at(1, v)]; F[at(1, v)] = 0 } \
  :: d_step { lateblob[v] -> lateblob[v] = 0; blob[v] = 1 }
#define EXPIRES(v) :: d_step { kind[v] && !over[v] && !ended[v] -> over[v] = 1 }
proctype world() {            /* late writes land, deadlines pass */
end: do
  EACH(LANDS)
  EACH(EXPIRES)
  :: d_step { streams && !streamed -> streamed = 1 }
  :: left == 0 -> break
  od
}

#define DRAWS(v) :: !kind[v] -> s = v
proctype writer(bool d) {
  byte s; bool ok = true;
  atomic {
    if EACH(DRAWS) fi;        /* any stamp: clocks differ */
    if
    :: kind[s] = MARKER
    :: kind[s] = PUT;
#ifndef BUG_ROW_BEFORE_BLOB
       if
       :: blob[s] = 1
       :: lost > 0 -> lost--; lateblob[s] = 1; ok = false
       :: lost > 0 -> lost--; blob[s] = 1; ok = false     /* it dies here */
       fi
#endif
    fi };
  if
  :: ok -> write_local(d, s, 1, ok);
#ifdef BUG_ROW_BEFORE_BLOB
     if :: ok && kind[s] == PUT -> blob[s] = 1 :: else fi
#endif
  :: else
  fi;
  d_step {
#ifdef BUG_ACK_LATE
    if :: ok -> raise(acked[d], s) :: else fi;
#else
    if :: ok && !over[s] -> raise(acked[d], s) :: else fi;
#endif
    ended[s] = 1; over[s] = 0; s = 0; ok = 0 };
  left--
}

proctype reader() {
  byte n = 0, s; bool d;
  do
  :: n == RK -> break
  :: n < RK -> n++;
     atomic {
       if :: d = 0 :: d = 1 fi;
       reads++;
       s = N; do :: s > 0 && !LIVE(Q[at(d, s)]) -> s-- :: else -> break od;
       assert(s >= acked[d] || s == 0 && cleared >= acked[d]);
       if :: s > 0 && kind[s] == PUT -> assert(blob[s] == 1); streams = 1 :: else -> s = 0 fi; d = 0 };
     d_step { if :: streams && !streamed -> assert(blob[s] == 1) :: else fi; streams = 0; streamed = 0; s = 0 }
  od;
  left--
}

#ifdef BUG_YOUNG_ORPHANS
#define OLD(v) true
#else
#define OLD(v) (over[v] || ended[v])
#endif
#ifdef BUG_NO_GRACE
#define GRACE(v) true
#else
#define GRACE(v) (!streams || streamed || reads >= proof[v])
#endif
/* what a cleaner finds to do with version v by itself: the blob of a put that is old and has no row; a row that somebody has begun to
   burn; a burned one whose grace is over */
#define SUSPECT(v) (kind[v] == PUT && blob[v] == 1 && OLD(v) && (Q[at(0, v)] == 0 || Q[at(1, v)] == 0))
#define HALF(v) (!proof[v] && MAX(both(v), MAX(F[at(0, v)], F[at(1, v)])) == BURNED)
#define DUE(v) (proof[v] && GRACE(v) && (blob[v] == 1 || Q[at(0, v)] != REMOVED || Q[at(1, v)] != REMOVED))
inline burn(v, ok) {
  atomic { write_each(v, BURNED, ok);
#ifdef BUG_GRACE_FROM_SENDING
    ok = true;
#endif
    if :: ok -> proof[v] = reads + 1 :: else fi }
}
inline supersede(ok) {
  atomic {                    /* one slice: c is the newest that is live and has no note, s the next live one below */
    c = 0; s = N;
    do
    :: s == 0 -> c = 0; break
    :: s > 0 -> read_each(s, x);
       if
       :: LIVE(x) && !c -> read_note(s, x); if :: !x -> c = s :: else fi
       :: LIVE(x) && c > s -> break
       :: else
       fi; s--
    od; x = 0 };
  if
  :: c > 0 ->
#ifdef BUG_NO_KEEP
     ok = true;
#else
     write_each(c, KEPT, ok);
#endif
#ifdef BUG_KEEP_UNACKNOWLEDGED
     ok = true;
#endif
#ifndef BUG_NO_LOOK_AT_NOTE
     if :: ok -> atomic { read_note(c, x); if :: x -> ok = false :: else fi; x = 0 } :: else fi;
#endif
     if
     :: ok ->
        burn(s, ok)
     :: else
     fi
  :: else
  fi;
  d_step { c = 0; s = 0; ok = 0 }
}
inline orphan(v, ok) {
#ifdef BUG_SUSPECT_LOCAL
  x = Q[at(0, v)];
#else
  atomic { read_each(v, x) };
#endif
  if
  :: x == 0 ->
#ifdef BUG_NO_BURN
     blob[v] = 2
#else
#ifdef BUG_NO_NOTE
     ok = true;
#else
     if :: d_step { note[v] = 2; ok = true } :: d_step { lost > 0 -> lost--; raise(note[v], 1); ok = false } fi;
#endif
#ifdef BUG_NOTE_UNACKNOWLEDGED
     ok = true;
#endif
     if
     :: ok ->
#if !defined(BUG_NO_SECOND_LOOK) && !defined(BUG_SUSPECT_LOCAL)
        atomic { read_each(v, x) };
#endif
        if :: x == 0 -> burn(v, ok) :: else fi
     :: else
     fi
#endif
  :: else
  fi;
  d_step { x = 0; ok = 0 }
}
inline finish(v, ok) {
  if :: d_step { blob[v] == 1 -> blob[v] = 2 } :: else fi;
  atomic { write_each(v, REMOVED, ok); ok = 0 }
}
/* nothing of version v is left, and nothing can come any more: its put is over, and hints of it are */
#define GONE(v) (ended[v] && (Q[at(0, v)] == 0 || Q[at(0, v)] == REMOVED) && (Q[at(1, v)] == 0 || Q[at(1, v)] == REMOVED) && \
  F[at(0, v)] == 0 && F[at(1, v)] == 0)
#ifdef BUG_MARKER_EARLY
#define BARE(v) (kind[1] && (v) > 1)
#else
#define BARE(v) ((v) > 1 && GONE(1) && ((v) < 3 || GONE(2)))
#endif
#define TASKS(v) \
  :: SUSPECT(v) -> orphan(v, ok) \
  :: HALF(v) -> burn(v, ok); ok = 0 \
  :: DUE(v) -> finish(v, ok) \
  :: kind[v] == MARKER && LIVE(Q[at(0, v)]) && BARE(v) -> atomic { raise(cleared, v); write_each(v, REMOVED, ok); ok = 0 }
proctype cleaner() {
  byte c, s, x; bool ok;
  do
  :: supersede(ok)
  EACH(TASKS)
  :: break
  od;
  left--
}

#define SETTLES(v) \
  if :: BEATS(F[at(0, v)], Q[at(0, v)]) -> Q[at(0, v)] = F[at(0, v)] :: true fi; \
  if :: BEATS(F[at(1, v)], Q[at(1, v)]) -> Q[at(1, v)] = F[at(1, v)] :: true fi; \
  F[at(0, v)] = 0; F[at(1, v)] = 0; \
  if :: lateblob[v] -> blob[v] = 1 :: true fi; lateblob[v] = 0;
#define CLEANS(v) \
  if :: SUSPECT(v) -> orphan(v, ok) :: else fi; \
  if :: HALF(v) -> burn(v, ok); ok = 0 :: else fi; \
  if :: blob[v] == 1 && both(v) == REMOVED && !proof[v] -> blob[v] = 2 :: else fi;   /* it landed after its row was removed */ \
  if :: DUE(v) -> finish(v, ok) :: else fi;
#define ENDS(v) assert(v == s || blob[v] != 1 || v < s && note[s]);   /* below one that was suspected one may stay until that one is superseded */
proctype final() {
  byte c, s, x, round; bool ok;
  left == 0;
  atomic {
    EACH(SETTLES)
    lost = 0;
    round = 0;
    do :: round == 3*N -> break
       :: round < 3*N -> round++; supersede(ok); EACH(CLEANS)
    od;
    s = N; do :: s > 0 && !LIVE(both(s)) -> s-- :: else -> break od;
    x = MAX(acked[0], acked[1]);
    assert(s >= x || s == 0 && cleared >= x);
    assert(s == 0 || kind[s] == MARKER || blob[s] == 1);
    EACH(ENDS)
  }
}
#ifdef PROBE                  /* must be reachable */
proctype probe() {
  if
  :: PROBE == 1 && proof[1] && !ended[1] && note[1] == 2 -> assert(false)              /* burned while its writer is still under way */
  :: PROBE == 2 && blob[1] == 2 && Q[at(0, 1)] == REMOVED && acked[0] == 2 && LIVE(Q[at(0, 2)]) && kind[2] == PUT -> assert(false)
  :: PROBE == 3 && acked[0] == 1 && acked[1] == 2 && Q[at(1, 1)] == 0 && Q[at(0, 2)] == 0 -> assert(false)   /* the data centres differ */
  :: PROBE == 4 && kind[2] == MARKER && Q[at(0, 2)] == REMOVED && blob[1] == 2 -> assert(false)
  :: PROBE == 5 && note[2] == 2 && LIVE(Q[at(0, 2)]) && Q[at(0, 1)] == 1 -> assert(false)          /* a late row that was suspected */
  fi
}
#endif
init { atomic { byte i = 0;
  do :: i < NW -> run writer(i % 2); i++ :: else -> break od;
  i = 0; do :: i < NCL -> run cleaner(); i++ :: else -> break od;
  run reader(); run world(); run final();
#ifdef PROBE
  run probe();
#endif
  i = 0 } }
