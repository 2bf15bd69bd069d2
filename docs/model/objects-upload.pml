/* An upload in parts in two data centres: completions, an abort, and a cleaner (spin model; run.sh beside this file). docs/objects.md
   has the rules (11 to 13). Quorums and writes on their way as in objects.pml.

   The version that completes the upload is one row, with a list of parts. Two completions may name different lists; at equal
   timestamps the larger value stays. So the row is a maximum:
     0 absent < 1, 2 live with list 1, 2 < 3, 4 kept with list 1, 2 < 5 burned < 6 removed
   A claim says what somebody wants of the upload: list 1, list 2 or (3) its abort. Each try has a claim of its own, a row: 0 none, 1 there,
   2 withdrawn. Claims for the same do not disturb each other.

   completion  finds the upload open, with its parts; writes its claim, acknowledged; sees no claim for anything else; writes the version, acknowledged.
               If it has not sent that, it may withdraw its claim; it may also die. The second has the other list, or (-DSAME) the same
               one; a third (-DNCO=3) the first one's again, as somebody has who tries again.
   abort       writes its claim, acknowledged; sees no claim for anything else: the upload is aborted. Else it may withdraw its claim
   cleaner     at EACH_QUORUM. Ends the upload at any time. Once that is acknowledged, it keeps the version it sees. A grace later it looks
               again: what it has kept stays with its list, the parts of no list are deleted. If there is none, it burns the row that is not
               there, and after another grace deletes all parts. Of notes (rule 7) objects.pml has what is to be said.

   -DGONE: the parts of list 1 were lost before all else.

   Asserted: in one data centre only one of all completions (of one list) and the abort is acknowledged. What an acknowledged completion
   made is seen, with its parts or (after a cut) with those of another completion. No part of what is seen is deleted until the stream
   ends. In the end there is the version with its parts, or nothing. */
#ifndef RK
#define RK 1                  /* reads */
#endif
#ifndef NCL
#define NCL 1                 /* cleaners */
#endif
#ifndef NCO
#define NCO 2                 /* completions; the first in data centre 0 */
#endif
#ifndef WHERE
#define WHERE 1               /* the data centre of the second completion and, if it is 0, of the abort */
#endif
#ifndef LOST
#define LOST 1                /* unknown outcomes */
#endif
#ifdef SAME
#define WANTS(i) 1
#else
#define WANTS(i) ((i) % 2 + 1)
#endif
#define ABORT 3
#define ABORTER 4             /* completion i is i+1 */
#ifdef BUG_SHARED_CLAIMS      /* of all who want the same; one of them withdraws it */
#define ROW(k) ((k) == ABORTER -> ABORTER : WANTS((k) - 1))
#else
#define ROW(k) (k)
#endif
#define KEPT 3
#define BURNED 5
#define REMOVED 6
#define SEEN(x) ((x) >= 1 && (x) <= 4)
#define LIST(x) (((x) - 1) % 2 + 1)
#define MAX(a, b) ((a) > (b) -> (a) : (b))
#define at(d, k) ((d)*5 + (k))
byte Q[2], F[2];              /* the version's row by data centre; on its way to it */
byte C[10], G[10];            /* claims; on their way */
byte part[3] = 1;             /* of list 1 and 2: 1 there, 2 deleted */
bool E[2];                    /* the upload has ended */
bool runs[NCO], over[NCO];        /* the deadline of completion i runs, is over */
bool older[NCO*NCL];            /* it ran when the end was acknowledged to cleaner c */
byte acked[2]; bool aborted[2];  /* the list of a completion, or an abort, that was acknowledged in the data centre */
byte reads = 0, lost = LOST, left = NCO + 1 + 1 + NCL;
bool streams = 0, streamed = 0;

inline raise(cell, r) { if :: cell < (r) -> cell = (r) :: else fi }
inline write_local(d, r, ok) {
  if
  :: d_step { raise(Q[d], r); raise(F[1-(d)], r); ok = true }
  :: d_step { lost > 0 -> lost--; raise(F[0], r); raise(F[1], r); ok = false }
  fi
}
inline write_each(r, ok) {
  if
  :: d_step { raise(Q[0], r); raise(Q[1], r); ok = true }
  :: d_step { lost > 0 -> lost--; raise(F[0], r); raise(F[1], r); ok = false }
  fi
}
inline read_each(x) {
  if
  :: x = MAX(Q[0], Q[1])
  :: F[0] > MAX(Q[0], Q[1]) -> x = F[0]
  :: F[1] > MAX(Q[0], Q[1]) -> x = F[1]
  fi
}
inline claim(d, k, ok) {
  if
  :: d_step { send(d, k, 1); come(d, k); ok = true }
  :: d_step { lost > 0 -> lost--; send(d, k, 1); ok = false }
  fi
}
inline send(d, k, x) {
  if :: C[at(0, ROW(k))] < x -> raise(G[at(0, ROW(k))], x) :: else fi;
  if :: C[at(1, ROW(k))] < x -> raise(G[at(1, ROW(k))], x) :: else fi
}
inline come(d, k) { raise(C[at(d, ROW(k))], G[at(d, ROW(k))]); G[at(d, ROW(k))] = 0 }
inline withdraw(d, k) {       /* acknowledged, unknown, or never */
  if
  :: d_step { send(d, k, 2); come(d, k) }
  :: d_step { lost > 0 -> lost--; send(d, k, 2) }
  :: true
  fi
}
#define WANTED(k) ((k) == ABORTER -> ABORT : WANTS((k) - 1))
#define CLAIMED(d, k, by) (C[at(d, by)] == 1 && WANTED(by) != WANTED(k))
#define OTHERS(d, k) (CLAIMED(d, k, 1) || CLAIMED(d, k, 2) || CLAIMED(d, k, 3) || CLAIMED(d, k, ABORTER))

#define CLAIMS(i) :: d_step { G[i] > 0 -> raise(C[i], G[i]); G[i] = 0 }
#define EXPIRES(i) :: d_step { runs[i] && !over[i] -> over[i] = 1 }
proctype world() {
end: do
  :: d_step { F[0] -> raise(Q[0], F[0]); F[0] = 0 }
  :: d_step { F[1] -> raise(Q[1], F[1]); F[1] = 0 }
  CLAIMS(1) CLAIMS(2) CLAIMS(4) CLAIMS(6) CLAIMS(7) CLAIMS(9)
  EXPIRES(0)
#if NCO > 1
  EXPIRES(1)
#endif
#if NCO > 2
  CLAIMS(3) CLAIMS(8) EXPIRES(2)
#endif
  :: d_step { streams && !streamed -> streamed = 1 }
  :: left == 0 -> break
  od
}

proctype completion(byte i) {
  bool d = (i > 0) && WHERE; bool ok, claims, sent;
  /* It may come too late, or never. It looks at its parts in the same step: while the upload is open nobody here takes them. */
#ifdef BUG_BLIND
  atomic { if :: !E[d] -> runs[i] = 1; ok = true :: ok = false fi };
#else
  atomic { if :: !E[d] && part[WANTS(i)] == 1 -> runs[i] = 1; ok = true :: ok = false fi };
#endif
#ifdef BUG_LOOK_FIRST
  if :: ok && OTHERS(d, i+1) -> ok = false :: else fi;
#endif
  if :: ok -> claims = true; claim(d, i+1, ok) :: else fi;
#if !defined(BUG_NO_LOOK) && !defined(BUG_LOOK_FIRST)
  if :: ok && OTHERS(d, i+1) -> ok = false :: else fi;
#endif
  atomic {
    if :: ok && over[i] -> ok = false :: else fi;
    if :: ok -> sent = true; write_local(d, WANTS(i), ok) :: else fi;
#ifdef BUG_WITHDRAW_UNKNOWN   /* also if it does not know what became of the version */
    if :: sent && !ok -> sent = false :: else fi;
#endif
    d_step {
      if
      :: ok && !over[i] ->
         assert(!aborted[d] && (!acked[d] || acked[d] == WANTS(i)));
         acked[d] = WANTS(i)
      :: else
      fi;
      runs[i] = 0; over[i] = 0; older[i] = 0; ok = 0;
#if NCL > 1
      older[NCO+i] = 0;
#endif
    } };
  if :: claims && !sent -> withdraw(d, i+1) :: else fi;
  d_step { claims = 0; sent = 0; d = 0; left-- }
}

proctype abort_() {
  bool d = WHERE; bool ok;
  claim(d, ABORTER, ok);
#ifdef BUG_ABORT_LOOKS_AT_VERSION   /* not at claims */
  if :: ok && SEEN(Q[d]) -> ok = false :: else fi;
#else
  if :: ok && OTHERS(d, ABORTER) -> ok = false :: else fi;
#endif
  if
  :: d_step { ok -> assert(!acked[d]); aborted[d] = 1; E[d] = 1 }
  :: else -> withdraw(d, ABORTER)
  fi;
  d_step { ok = 0; d = 0; left-- }
}

proctype reader() {
  byte n = 0, s; bool d;
  do
  :: n == RK -> break
  :: n < RK -> n++;
     atomic {
       if :: d = 0 :: d = 1 fi;
       reads++;
       s = Q[d];
       assert(!acked[d] || SEEN(s));
       if :: SEEN(s) -> s = LIST(s); assert(part[s] == 1); streams = 1 :: else -> s = 0 fi; d = 0 };
     d_step { if :: streams && !streamed -> assert(part[s] == 1) :: else fi; streams = 0; streamed = 0; s = 0 }
  od;
  left--
}

#ifdef BUG_NO_GRACE
#define GRACE(p) true
#else
#define GRACE(p) (!streams || streamed || reads >= (p))
#endif
#ifdef BUG_NO_WAIT            /* for the deadlines of completions */
#define CALM(me) true
#else
#define PASSED(me, i) (!(older[NCO*(me)+i] && runs[i] && !over[i]))
#if NCO == 1
#define CALM(me) PASSED(me, 0)
#elif NCO == 2
#define CALM(me) (PASSED(me, 0) && PASSED(me, 1))
#else
#define CALM(me) (PASSED(me, 0) && PASSED(me, 1) && PASSED(me, 2))
#endif
#endif
/* All of it is one cleaner's way; it may stop anywhere, and another one (NCL) begins anew. That cleaners go on from the
   proof of another one adds nothing: what proof and l say is all that a way knows, and it may rest between two steps. */
proctype cleaner(byte me) {
  byte x, l, proof; bool ok;
  do
  :: break
  :: ok = 0; l = 0;
     d_step { E[0] = 1; E[1] = 1; older[NCO*me] = runs[0];   /* acknowledged; before, it has no effect */
#if NCO > 1
       older[NCO*me+1] = runs[1];
#endif
#if NCO > 2
       older[NCO*me+2] = runs[2];
#endif
     };
     atomic { read_each(x) };
#ifndef BUG_NO_KEEP
     if
     :: SEEN(x) -> l = LIST(x); write_each(LIST(x) + 2, ok); if :: !ok -> l = 0 :: else fi
     :: else -> ok = true
     fi;
#else
     if :: SEEN(x) -> l = LIST(x) :: else fi; ok = true;
#endif
     proof = reads + 1;
     if
     :: ok ->
        CALM(me) && GRACE(proof);
        atomic { read_each(x) };
        if
        :: SEEN(x) && l == LIST(x) ->
           d_step { part[3-l] = 2 }
        :: x == 0 ->
#ifdef BUG_NO_BURN
           d_step { part[1] = 2; part[2] = 2 }
#else
           write_each(BURNED, ok)
#endif
        :: else
        fi
     :: else
     fi;
     d_step { x = 0; l = 0; ok = 0; proof = 0 }
  :: MAX(Q[0], Q[1]) == BURNED || MAX(F[0], F[1]) == BURNED ->
     write_each(BURNED, ok);
     if
     :: ok -> proof = reads + 1; GRACE(proof); d_step { part[1] = 2; part[2] = 2 }; write_each(REMOVED, ok)
     :: else
     fi;
     d_step { ok = 0; proof = 0 }
  od;
  left--
}

proctype final() {            /* all has landed, or is lost; a cleaner looks once more */
  byte x;
  left == 0;
  atomic {
    if :: F[0] -> raise(Q[0], F[0]) :: true fi;
    if :: F[1] -> raise(Q[1], F[1]) :: true fi;
    x = MAX(Q[0], Q[1]);
    assert(!(acked[0] || acked[1]) || SEEN(x));
    if
    :: SEEN(x) -> assert(part[LIST(x)] == 1); assert(!aborted[0] || acked[1] || WHERE); part[3-LIST(x)] = 2
    :: else
    fi
  }
}
#ifdef PROBE                  /* must be reachable */
proctype probe() {
  if
  :: PROBE == 1 && aborted[1] && acked[0] -> assert(false)                              /* while the data centres are cut */
  :: PROBE == 2 && acked[0] == 1 && Q[0] == 2 -> assert(false)                          /* so, too: the other list stays */
  :: PROBE == 3 && Q[0] == REMOVED && part[1] == 2 -> assert(false)
  :: PROBE == 4 && acked[0] == 1 && part[2] == 2 && Q[0] == KEPT -> assert(false)
  :: PROBE == 5 && aborted[WHERE] && SEEN(Q[WHERE]) -> assert(false)
  :: PROBE == 6 && C[at(0, 1)] == 2 && acked[WHERE] -> assert(false)                    /* who withdraws lets another one succeed */
  :: PROBE == 7 && C[at(0, 2)] == 2 && aborted[WHERE] -> assert(false)
  fi
}
#endif
init { atomic { byte i = 0;
#ifdef GONE
  part[1] = 2;
#endif
  do :: i < NCO -> run completion(i); i++ :: else -> break od;
  i = 0; do :: i < NCL -> run cleaner(i); i++ :: else -> break od;
  run abort_(); run reader(); run world(); run final();
#ifdef PROBE
  run probe();
#endif
  i = 0 } }
