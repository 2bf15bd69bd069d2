/* Puts of bodies that are blobs, whose versions have a stamp of the end of the body, in two data centres: puts, a delete, a
   delete by version, a cleaner (spin model; run.sh beside this file). Only the newest version counts. docs/objects.md has the rules
   (1, 2, 6 to 8). Rows, quorums and writes on their way as in objects.pml, but stamps are of one common time, and what is on its
   way may also be lost.

   A put draws a name for its blob when it begins, and a stamp when the body has come. The row at that stamp tells the name; the
   name does not tell the stamp. So a cleaner that finds a blob can't burn the row that is not there: it waits until none can come.
     op: 1 and 2 are puts, 3 is the delete; S[op] is its stamp, Q and F its row: 0 absent < 1 live < 2 kept < 3 burned < 4 removed

   put         begins: name and deadline; the blob; the stamp; the row (local), unless the deadline is over; acknowledged
   delete      a delete marker: a row without a blob
   destroyer   burns what it sees as the newest version (local)
   cleaner     supersedes (rule 6) and finishes (rule 8) by the name that the row tells. A blob without a row: once the deadline is
               over, and what was sent before has come or is lost, it looks at EACH_QUORUM for a row that tells its name, and
               deletes it if there is none.

   Asserted: a put that is acknowledged is newer than all that was acknowledged before its body ended. A reader sees what was
   acknowledged in its data centre, or newer, until it is deleted; the blob of what it sees is there until its stream ends. In the
   end no blob is left but those of versions that are seen. */
#ifndef RK
#define RK 1                  /* reads */
#endif
#ifndef LOST
#define LOST 1                /* unknown outcomes and crashes */
#endif
#ifndef NP
#define NP 1                  /* puts */
#endif
#define KEPT 2
#define BURNED 3
#define REMOVED 4
#define SEEN(x) ((x) == 1 || (x) == KEPT)
#define MAX(a, b) ((a) > (b) -> (a) : (b))
#define at(d, o) ((d)*4 + (o))
#define both(o) MAX(Q[at(0, o)], Q[at(1, o)])
byte Q[8], F[8];              /* rows by data centre; on their way to it */
byte S[4], clock;             /* stamps; 0: not drawn yet */
byte blob[3];                 /* 0 none, 1 there, 2 deleted */
bool begun[4], over[4], ended[4];
bool destroyed[4];            /* somebody deletes it by its version */
byte acked[2], proof[4];      /* the highest stamp by data centre; as in objects.pml */
byte reads, lost = LOST, left = NP + 4;
bool streams, streamed;

inline raise(cell, r) { if :: cell < (r) -> cell = (r) :: else fi }
inline tidy(o) {
  if :: F[at(0, o)] <= Q[at(0, o)] -> F[at(0, o)] = 0 :: else fi;
  if :: F[at(1, o)] <= Q[at(1, o)] -> F[at(1, o)] = 0 :: else fi
}
inline write_local(d, o, r, ok) {
  if
  :: d_step { raise(Q[at(d, o)], r); raise(F[at(1-(d), o)], r); tidy(o); ok = true }
  :: d_step { lost > 0 -> lost--; raise(F[at(0, o)], r); raise(F[at(1, o)], r); tidy(o); ok = false }
  fi
}
inline write_each(o, r, ok) {
  if
  :: d_step { raise(Q[at(0, o)], r); raise(Q[at(1, o)], r); tidy(o); ok = true }
  :: d_step { lost > 0 -> lost--; raise(F[at(0, o)], r); raise(F[at(1, o)], r); tidy(o); ok = false }
  fi
}
inline read_each(o, x) {
  if
  :: x = both(o)
  :: F[at(0, o)] > both(o) -> x = F[at(0, o)]
  :: F[at(1, o)] > both(o) -> x = F[at(1, o)]
  fi
}
#define EACH(m) m(1) m(2) m(3)
/* n is the op with the highest stamp that data centre d sees. */
#define NEWER(o) if :: SEEN(Q[at(d, o)]) && (n == 0 || S[o] > S[n]) -> n = o :: else fi;

#define LANDS(i) \
  :: d_step { F[i] -> raise(Q[i], F[i]); F[i] = 0 } \
  :: d_step { F[i] -> F[i] = 0 }
#define EXPIRES(o) :: d_step { begun[o] && !over[o] && !ended[o] -> over[o] = 1 }
proctype world() {
end: do
  LANDS(1) LANDS(3) LANDS(5) LANDS(7) EXPIRES(1)
#if NP > 1
  LANDS(2) LANDS(6) EXPIRES(2)
#endif
  :: d_step { streams && !streamed -> streamed = 1 }
  :: left == 0 -> break
  od
}

proctype writer(byte o) {
  bool d = (o == 2); byte before; bool ok = true;
  d_step {
    begun[o] = 1;
#ifdef BUG_BEGIN              /* the stamp is that of the beginning */
    clock++; S[o] = clock;
#endif
  };
  if
  :: o == 3
  :: o < 3 -> blob[o] = 1
  :: o < 3 && lost > 0 -> lost--; blob[o] = 1; ok = false       /* it dies here */
  fi;
  d_step {                    /* the body has come */
    before = MAX(acked[0], acked[1]);
#ifndef BUG_BEGIN
    clock++; S[o] = clock;
#endif
  };
  atomic {
    if :: ok && over[o] -> ok = false :: else fi;
    if :: ok -> write_local(d, o, 1, ok) :: else fi };
  d_step {
    if :: ok && !over[o] -> assert(S[o] > before); raise(acked[d], S[o]) :: else fi;
    ended[o] = 1; over[o] = 0; before = 0; ok = 0; left-- }
}

#define OLDER(o) if :: n > 0 && S[o] > 0 && S[o] <= S[n] -> destroyed[o] = 1 :: else fi;   /* what it had taken the place of, too */
proctype destroyer() {
  byte n; bool ok, d;
  atomic {
    if :: d = 0 :: d = 1 fi;
    d_step { EACH(NEWER) EACH(OLDER) };
    if :: n > 0 -> write_local(d, n, BURNED, ok) :: else fi;
    d_step { n = 0; ok = 0; d = 0; left-- } }
}

/* What was acknowledged may be hidden by what is newer, or deleted. */
#define HERE(o) (S[o] != acked[d] || destroyed[o])
proctype reader() {
  byte k = 0, n; bool d;
  do
  :: k == RK -> break
  :: k < RK -> k++;
     atomic {
       if :: d = 0 :: d = 1 fi;
       reads++;
       d_step { EACH(NEWER) };
       assert(acked[d] == 0 || n > 0 && S[n] >= acked[d] || (HERE(1) && HERE(2) && HERE(3)));
       if :: n == 1 || n == 2 -> assert(blob[n] == 1); streams = 1 :: else -> n = 0 fi; d = 0 };
     d_step { if :: streams && !streamed -> assert(blob[n] == 1) :: else fi; streams = 0; streamed = 0; n = 0 }
  od;
  left--
}

#define GRACE(o) (!streams || streamed || reads >= proof[o])
/* No row of the put can come any more. */
#if defined(BUG_YOUNG)        /* it goes by nothing */
#define SETTLED(o) true
#elif defined(BUG_EARLY)      /* it goes by the deadline alone: burning the row that the name tells would not stop another */
#define SETTLED(o) (over[o] || ended[o])
#else
#define SETTLED(o) ((over[o] || ended[o]) && F[at(0, o)] == 0 && F[at(1, o)] == 0)
#endif
#define DUE(o) (proof[o] && GRACE(o) && (Q[at(0, o)] != REMOVED || Q[at(1, o)] != REMOVED))
#define HALF(o) (!proof[o] && MAX(both(o), MAX(F[at(0, o)], F[at(1, o)])) == BURNED)
inline burn(o, ok) { atomic { write_each(o, BURNED, ok); if :: ok -> proof[o] = reads + 1 :: else fi } }
inline supersede(c, s, ok) {
  atomic { read_each(c, x) };
  if
  :: SEEN(x) ->
     write_each(c, KEPT, ok);
     if :: ok -> read_each(s, x); if :: SEEN(x) -> burn(s, ok) :: else fi :: else fi
  :: else
  fi;
  d_step { x = 0; ok = 0 }
}
inline orphan(o) {
#if defined(BUG_NAME_ONLY)    /* it looks for a row at the stamp that the name tells */
  blob[o] = 2
#elif defined(BUG_LOCAL)      /* in its own data centre */
  d_step { if :: Q[at(1, o)] == 0 -> blob[o] = 2 :: else fi }
#else
  atomic { read_each(o, x) };
  if :: x == 0 -> blob[o] = 2 :: else fi; x = 0
#endif
}
inline finish(o, ok) {
#ifndef BUG_OWN_NAME          /* it deletes what the stamp of the version would name */
  if :: d_step { o < 3 && blob[o] == 1 -> blob[o] = 2 } :: else fi;
#endif
  atomic { write_each(o, REMOVED, ok); ok = 0 }
}
#define TASKS(o) \
  :: HALF(o) -> burn(o, ok); ok = 0 \
  :: DUE(o) -> finish(o, ok)
#define ORPHANS(o) :: begun[o] && blob[o] == 1 && (Q[at(0, o)] == 0 || Q[at(1, o)] == 0) && SETTLED(o) -> orphan(o)
#define OVER(c, s) :: SEEN(both(s)) && S[c] > S[s] && both(c) > 0 -> supersede(c, s, ok)
proctype cleaner() {
  byte x; bool ok;
  do
  EACH(TASKS)
  ORPHANS(1)
  OVER(1, 3) OVER(3, 1)
#if NP > 1
  ORPHANS(2) OVER(1, 2) OVER(2, 1) OVER(2, 3) OVER(3, 2)
#endif
  :: break
  od;
  left--
}

/* All has landed or is lost, and cleaners have looked again. */
#define SETTLES(i) if :: F[i] -> raise(Q[i], F[i]); F[i] = 0 :: F[i] -> F[i] = 0 :: else fi;
#define CLEANS(o) \
  if :: HALF(o) -> burn(o, ok); ok = 0 :: else fi; \
  if :: o < 3 && blob[o] == 1 && SETTLED(o) && (Q[at(0, o)] == 0 || Q[at(1, o)] == 0) -> orphan(o) :: else fi; \
  if :: DUE(o) -> finish(o, ok) :: else fi;
proctype final() {
  byte x, n; bool ok;
  left == 0;
  atomic {
    SETTLES(1) SETTLES(2) SETTLES(3) SETTLES(5) SETTLES(6) SETTLES(7)
    lost = 0;
    EACH(CLEANS) EACH(CLEANS)
    assert(blob[1] != 1 || SEEN(both(1)));
    assert(blob[2] != 1 || SEEN(both(2)));
    assert(!SEEN(both(1)) || blob[1] == 1);
    assert(!SEEN(both(2)) || blob[2] == 1);
  }
}
#ifdef PROBE                  /* must be reachable */
proctype probe() {
  if
  :: PROBE == 1 && begun[1] && !S[1] && acked[1] -> PROBE == 1 && acked[0] && S[1] == acked[0] && S[1] > acked[1] -> assert(false)
  :: PROBE == 2 && blob[1] == 2 && ended[1] && both(1) == 0 -> assert(false)              /* an orphan is freed */
  :: PROBE == 3 && ended[1] && both(1) == 0 && F[at(0, 1)] && blob[1] == 1 -> assert(false) /* its row may still come */
  :: PROBE == 4 && blob[1] == 2 && both(1) == REMOVED && SEEN(both(2)) && S[2] > S[1] -> assert(false)   /* superseded */
  :: PROBE == 5 && S[3] && begun[2] && !S[2] && acked[0] == S[3] -> PROBE == 5 && acked[1] && acked[1] == S[2] -> assert(false)
  fi
}
#endif
init { atomic {
  run writer(1); run writer(3); run destroyer(); run cleaner(); run reader(); run world(); run final();
#if NP > 1
  run writer(2);
#endif
#ifdef PROBE
  run probe();
#endif
} }
