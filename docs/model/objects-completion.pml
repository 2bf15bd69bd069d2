/* An upload in parts whose version has a stamp of its completion, in two data centres: completions, a delete of the object
   before them, a delete of the version, and a cleaner (spin model; run.sh beside this file). docs/objects.md has the rules
   (8, 11 to 13). Quorums and writes on their way as in objects.pml, claims and aborts as in objects-upload.pml.

   A completion draws a stamp. The version is a row at that stamp, and names the upload, below which its parts are. A claim
   names the parts and the stamp. So a claim for the same parts at another stamp is a claim for something else.
     a row: 0 absent < 1 live < 2 kept < 3 burned < 4 removed; row i has list i of parts
     a claim: 0 none, 1 there, 2 withdrawn

   completion  finds the upload open; takes the stamp from a claim for its list, if it sees one, else draws one; writes its claim,
               acknowledged; sees no claim for anything else; writes the version, acknowledged. If it has not sent that it may
               withdraw its claim; it may also die. The second has the other list, or (-DSAME) the same one.
   delete      of the object: hides all whose stamps were drawn before it
   destroyer   burns a version that it sees, by its id (not with -DNO_DESTROYER)
   cleaner     at EACH_QUORUM. Ends the upload at any time. Once that is acknowledged it keeps the versions that it sees. A grace
               later it burns each version that has a claim and is not seen; another grace later it deletes the parts that no kept
               version lists, and then the rows of the upload. Of a burned version it deletes parts only once the upload has
               no rows, and no other version of it is seen.

   Asserted: in one data centre completions of one upload are acknowledged at one stamp. A delete that came before all
   completions hides none. What an acknowledged completion made is seen until it is deleted, with its parts. No part of what
   is seen is deleted until the stream ends. */
#ifndef RK
#define RK 1                  /* reads */
#endif
#ifndef LOST
#define LOST 0                /* unknown outcomes */
#endif
#ifndef WHERE
#define WHERE 1               /* the data centre of the second completion */
#endif
#ifdef SAME
#define LIST(r) 1
#else
#define LIST(r) (r)
#endif
#define KEPT 2
#define BURNED 3
#define REMOVED 4
#define SEEN(x) ((x) == 1 || (x) == KEPT)
#define MAX(a, b) ((a) > (b) -> (a) : (b))
#define at(d, r) ((d)*3 + (r))
byte Q[6], F[6];              /* rows of versions by data centre; on their way to it */
byte C[6], G[6];              /* claims of completions 1 and 2; on their way */
byte S[3];                    /* the stamp, a row, that a claim names */
byte part[3] = 1;             /* of list 1 and 2: 1 there, 2 deleted */
bool above[3];                /* the stamp was drawn after the delete */
bool E[2], freed;             /* the upload has ended; it has no rows any more */
bool runs[3], over[3], older[3];  /* deadlines of completions, as in objects-upload.pml */
byte acked[2]; bool destroyed[3]; /* the stamp of the completion that was acknowledged there; a version is being deleted */
bool begun, del, first;       /* a completion has begun; the object was deleted, and before that */
byte reads = 0, lost = LOST, left;
byte streams = 0; bool streamed = 0;

inline raise(cell, r) { if :: cell < (r) -> cell = (r) :: else fi }
inline write_local(d, v, r, ok) {
  if
  :: d_step { raise(Q[at(d, v)], r); raise(F[at(1-(d), v)], r); ok = true }
  :: d_step { lost > 0 -> lost--; raise(F[at(0, v)], r); raise(F[at(1, v)], r); ok = false }
  fi
}
inline write_each(v, r, ok) {
  if
  :: d_step { raise(Q[at(0, v)], r); raise(Q[at(1, v)], r); ok = true }
  :: d_step { lost > 0 -> lost--; raise(F[at(0, v)], r); raise(F[at(1, v)], r); ok = false }
  fi
}
inline read_each(v, x) {
  if
  :: x = MAX(Q[at(0, v)], Q[at(1, v)])
  :: F[at(0, v)] > MAX(Q[at(0, v)], Q[at(1, v)]) -> x = F[at(0, v)]
  :: F[at(1, v)] > MAX(Q[at(0, v)], Q[at(1, v)]) -> x = F[at(1, v)]
  fi
}
inline send(k, x) { raise(G[at(0, k)], x); raise(G[at(1, k)], x) }
inline come(d, k) { raise(C[at(d, k)], G[at(d, k)]); G[at(d, k)] = 0 }
#ifdef BUG_TWO_STAMPS         /* a claim is for the list only */
#define OTHER(a, b) (LIST(a) != LIST(b))
#else
#define OTHER(a, b) (S[a] != S[b])
#endif
#define CLAIMED(v) ((C[at(0, 1)] == 1 || C[at(1, 1)] == 1) && S[1] == (v) || (C[at(0, 2)] == 1 || C[at(1, 2)] == 1) && S[2] == (v))

#define LANDS(i) :: d_step { F[i] -> raise(Q[i], F[i]); F[i] = 0 }
#define CLAIMS(i) :: d_step { G[i] > 0 -> raise(C[i], G[i]); G[i] = 0 }
#define EXPIRES(i) :: d_step { runs[i] && !over[i] -> over[i] = 1 }
proctype world() {
end: do
  LANDS(1) LANDS(2) LANDS(4) LANDS(5) CLAIMS(1) CLAIMS(2) CLAIMS(4) CLAIMS(5) EXPIRES(1) EXPIRES(2)
  :: d_step { streams && !streamed -> streamed = 1 }
  :: left == 0 -> break
  od
}

proctype completion(byte i) {
  bool d = (i > 1) && WHERE; bool ok, claims, sent; byte o = 3 - i;
  atomic { if :: !E[d] && part[LIST(i)] == 1 -> runs[i] = 1; begun = 1; ok = true :: ok = false fi };
  if
  :: ok ->
     atomic {
#ifndef BUG_TWO_STAMPS
       if
       :: C[at(d, o)] == 1 && LIST(o) == LIST(i) -> S[i] = S[o]
       :: else ->
#endif
          S[i] = i;
#ifdef BUG_CREATION           /* the stamp is that of the upload */
          above[i] = 0
#else
          above[i] = del
#endif
#ifndef BUG_TWO_STAMPS
       fi
#endif
     };
     claims = true;
     if
     :: d_step { send(i, 1); come(d, i) }
     :: d_step { lost > 0 -> lost--; send(i, 1); ok = false }
     fi
  :: else
  fi;
  if :: ok && C[at(d, o)] == 1 && OTHER(o, i) -> ok = false :: else fi;
  atomic {
    if :: ok && over[i] -> ok = false :: else fi;
    if :: ok -> sent = true; write_local(d, S[i], 1, ok) :: else fi;
    d_step {
      if
      :: ok && !over[i] ->
         assert(!acked[d] || acked[d] == S[i]);
         assert(!first || above[S[i]]);
         acked[d] = S[i]
      :: else
      fi;
      runs[i] = 0; over[i] = 0; older[i] = 0; ok = 0 } };
  if
  :: claims && !sent ->
     if
     :: d_step { send(i, 2); come(d, i) }
     :: true
     fi
  :: else
  fi;
  d_step { claims = 0; sent = 0; left-- }
}

proctype delete_() {
  d_step { del = 1; first = !begun };
  left--
}

proctype destroyer() {
  byte v; bool ok;
  if
  :: d_step { SEEN(Q[at(0, 1)]) -> v = 1; destroyed[1] = 1 }; write_local(0, 1, BURNED, ok)
  :: d_step { SEEN(Q[at(0, 2)]) -> v = 2; destroyed[2] = 1 }; write_local(0, 2, BURNED, ok)
  :: true
  fi;
  d_step { v = 0; ok = 0; left-- }
}

proctype reader() {
  byte n = 0, s, v; bool d;
  do
  :: n == RK -> break
  :: n < RK -> n++;
     atomic {
       if :: d = 0 :: d = 1 fi;
       if :: v = 1 :: v = 2 fi;
       reads++;
       s = Q[at(d, v)];
       assert(acked[d] != v || destroyed[v] || SEEN(s));
       if :: SEEN(s) -> s = LIST(v); assert(part[s] == 1); streams = v :: else -> s = 0 fi; d = 0 };
     d_step { if :: streams && !streamed -> assert(part[s] == 1) :: else fi; streams = 0; streamed = 0; s = 0; v = 0 }
  od;
  left--
}

#define GRACE(p) (!streams || streamed || reads >= (p))
#define CALM (!(older[1] && runs[1] && !over[1]) && !(older[2] && runs[2] && !over[2]))
/* x1 and x2 are the rows as the cleaner sees them; a part stays that a kept one lists. */
inline look() { read_each(1, x1); read_each(2, x2) }
#define KEEPS(x, v, l) ((x) == KEPT && LIST(v) == (l))
inline drop(l) { if :: !KEEPS(x1, 1, l) && !KEEPS(x2, 2, l) -> part[l] = 2 :: else fi }
proctype cleaner() {
  byte x1, x2, proof; bool ok;
  do
  :: break
  :: !freed ->
     ok = true;
     d_step { E[0] = 1; E[1] = 1; older[1] = runs[1]; older[2] = runs[2] };
     atomic { look() };
     if :: SEEN(x1) -> write_each(1, KEPT, ok) :: else fi;
     if :: ok && SEEN(x2) -> write_each(2, KEPT, ok) :: else fi;
     proof = reads + 1;
     if
     :: ok ->
        CALM && GRACE(proof);
        atomic { look() };
#ifdef BUG_NAME_ONLY          /* no row has the name of the parts: they have no version */
        d_step { part[1] = 2; part[2] = 2 };
#endif
        if
        :: x1 == 1 || x2 == 1    /* it begins anew */
        :: else ->
#ifndef BUG_NO_BURN
           if :: (x1 == 0 || x1 == BURNED) && CLAIMED(1) -> write_each(1, BURNED, ok) :: else fi;
           if :: ok && (x2 == 0 || x2 == BURNED) && CLAIMED(2) -> write_each(2, BURNED, ok) :: else fi;
#endif
           proof = reads + 1;
           if
           :: ok ->
              GRACE(proof);
              atomic { look(); if :: x1 != 1 && x2 != 1 -> d_step { drop(1); drop(2); freed = 1 } :: else fi }
           :: else
           fi
        fi
     :: else
     fi;
     d_step { x1 = 0; x2 = 0; ok = 0; proof = 0 }
#define FINISHES(v, o, FREED) \
  :: MAX(Q[at(0, v)], Q[at(1, v)]) == BURNED -> \
     write_each(v, BURNED, ok); \
     if \
     :: ok -> proof = reads + 1; GRACE(proof); \
        atomic { read_each(o, x1); \
        if :: FREED -> d_step { if :: !SEEN(x1) -> part[1] = 2; part[2] = 2 :: else fi }; write_each(v, REMOVED, ok) :: else fi } \
     :: else \
     fi; \
     d_step { x1 = 0; ok = 0; proof = 0 }
#ifdef BUG_OPEN               /* of a burned version, while the upload has rows */
  FINISHES(1, 2, true)
#else
  FINISHES(1, 2, freed) FINISHES(2, 1, freed)
#endif
  od;
  left--
}

proctype final() {            /* all has landed; a cleaner looks once more */
  left == 0;
  d_step {
    raise(Q[1], F[1]); raise(Q[2], F[2]); raise(Q[1], Q[4]); raise(Q[1], F[4]); raise(Q[2], Q[5]); raise(Q[2], F[5]);
    assert((acked[0] != 1 && acked[1] != 1) || destroyed[1] || SEEN(Q[1]));
    assert((acked[0] != 2 && acked[1] != 2) || destroyed[2] || SEEN(Q[2]));
    assert(!SEEN(Q[1]) || part[LIST(1)] == 1);
    assert(!SEEN(Q[2]) || part[LIST(2)] == 1) }
}
#ifdef PROBE                  /* must be reachable */
proctype probe() {
  if
  :: PROBE == 1 && acked[0] == 1 && acked[1] == 2 -> assert(false)          /* while the data centres are cut */
  :: PROBE == 2 && acked[0] == 1 && freed && part[2] == 2 && part[1] == 1 -> assert(false)
  :: PROBE == 3 && destroyed[1] && Q[1] == REMOVED && part[1] == 2 -> assert(false)
  :: PROBE == 4 && acked[0] == 1 && S[2] == 1 && C[2] == 1 -> assert(false)   /* a stamp is taken from a claim */
  :: PROBE == 5 && first && acked[0] -> assert(false)
  fi
}
#endif
init { atomic {
  run completion(1); run completion(2); run delete_(); run cleaner();
#ifndef NO_DESTROYER
  run destroyer();
#endif
  run reader(); run world(); run final();
#ifdef NO_DESTROYER
  left = 5;
#else
  left = 6;
#endif
#ifdef PROBE
  run probe();
#endif
} }
