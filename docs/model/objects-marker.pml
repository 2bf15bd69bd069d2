/* A delete marker, and an upload in parts that was created before it and completes after it, in two data centres (spin model;
   run.sh beside this file). docs/objects.md has the rules (6, 8, 10, 12 and 13). Quorums and writes on their way as in objects.pml;
   claims and lists of parts are in objects-upload.pml.

   Rows, each a maximum of what was written:
     V the upload's version: 0 absent < 1 live < 2 kept < 3 burned < 4 removed
     U the upload's own row: 1 open < 2 ended < 3 removed
     M the marker, newer than V: 1 there < 2 removed. It is there, acknowledged and old, from the beginning

   completion  finds the upload open, and writes the version before its deadline is over.
   cleaner     at EACH_QUORUM. Frees the upload as in objects-upload.pml, and then removes its row. Burns the version because of the
               marker; what is burned is removed after a grace. Removes the marker once it sees no row of the upload and then, looking
               again, no version.

   Asserted: the version, which the marker hides, is never seen.

   Rule 16 is the same with M as a blob that the version needs, whose name does not tell the key: 1 there < 2 deleted. It is deleted
   where the marker is removed, and the version is never seen without it. */
#ifndef NCL
#define NCL 2                 /* cleaners */
#endif
#ifndef NCO
#define NCO 2                 /* completions, one in each data centre */
#endif
#ifndef LOST
#define LOST 1                /* unknown outcomes */
#endif
#define LIVE 1
#define KEPT 2
#define BURNED 3
#define REMOVED 4
#define SEEN(x) ((x) == LIVE || (x) == KEPT)
#define NONE(x) ((x) == 0 || (x) == REMOVED)
#define MAX(a, b) ((a) > (b) -> (a) : (b))
#define V 0
#define U 2
#define M 4
byte Q[6], F[6];              /* V, U and M by data centre; on their way to it */
bool runs[NCO], over[NCO];    /* the deadline of completion i runs, is over */
bool older[NCO*NCL];          /* it ran when something was acknowledged to cleaner c */
byte lost = LOST, left = NCO + NCL;

inline raise(cell, r) { if :: cell < (r) -> cell = (r) :: else fi }
inline write_each(row, r, ok) {
  if
  :: d_step { raise(Q[row], r); raise(Q[row+1], r); ok = true }
  :: d_step { lost > 0 -> lost--; raise(F[row], r); raise(F[row+1], r); ok = false }
  fi
}
inline read_each(row, x) {
  if
  :: x = MAX(Q[row], Q[row+1])
  :: F[row] > MAX(Q[row], Q[row+1]) -> x = F[row]
  :: F[row+1] > MAX(Q[row], Q[row+1]) -> x = F[row+1]
  fi
}

#define ARRIVES(i) :: d_step { F[i] -> raise(Q[i], F[i]); F[i] = 0 }
#define EXPIRES(i) :: d_step { runs[i] && !over[i] -> over[i] = 1 }
proctype world() {
end: do
  ARRIVES(0) ARRIVES(1) ARRIVES(2) ARRIVES(3) ARRIVES(4) ARRIVES(5)
  EXPIRES(0)
#if NCO > 1
  EXPIRES(1)
#endif
  :: left == 0 -> break
  od
}

proctype reader() { assert(!(SEEN(Q[V]) && Q[M] == 2) && !(SEEN(Q[V+1]) && Q[M+1] == 2)) }   /* at any time */

proctype completion(bool d) {
  bool ok;
  atomic { if :: Q[U+d] == 1 -> runs[d] = 1; ok = true :: ok = false fi };   /* it may come too late, or never */
  atomic {
    if
    :: ok && !over[d] ->
       if
       :: d_step { raise(Q[V+d], LIVE); raise(F[V+1-d], LIVE) }
       :: d_step { lost > 0 -> lost--; raise(F[V], LIVE); raise(F[V+1], LIVE) }
       fi
    :: else
    fi };
  d_step {
    runs[d] = 0; over[d] = 0; older[d] = 0; ok = 0;
#if NCL > 1
    older[NCO+d] = 0;
#endif
    left-- }
}

inline acknowledged(me) {
  older[NCO*me] = runs[0];
#if NCO > 1
  older[NCO*me+1] = runs[1]
#endif
}
#define PASSED(me, i) (!(older[NCO*(me)+i] && runs[i] && !over[i]))
#if NCO == 1
#define GRACE(me) PASSED(me, 0)
#else
#define GRACE(me) (PASSED(me, 0) && PASSED(me, 1))
#endif
/* Each of these is one cleaner's way; it may stop anywhere, and another one (NCL) begins anew. */
proctype cleaner(byte me) {
  byte x; bool ok;
  do
  :: break
  :: atomic { read_each(U, x) };      /* free the upload */
     if
     :: x < 3 ->
        write_each(U, 2, ok);
        if
        :: ok ->
           d_step { acknowledged(me) };
           atomic { read_each(V, x) };
           if :: SEEN(x) -> write_each(V, KEPT, ok) :: else fi;
           GRACE(me);
           atomic { read_each(V, x) };
           if
           :: ok && x == KEPT -> write_each(U, 3, ok)
           :: ok && NONE(x) -> write_each(V, BURNED, ok)
           :: ok && x == BURNED ->
              write_each(V, BURNED, ok);
              if
              :: ok ->
                 d_step { acknowledged(me) };
                 GRACE(me);
                 write_each(V, REMOVED, ok);
                 if :: ok -> write_each(U, 3, ok) :: else fi
              :: else
              fi
           :: else
           fi
        :: else
        fi
     :: else
     fi;
     d_step { x = 0; ok = 0 }
  :: Q[M] == 1 && Q[M+1] == 1 ->            /* burn the version because of the marker; remove it */
     atomic { read_each(V, x) };
     if
     :: SEEN(x) || x == BURNED ->
        write_each(V, BURNED, ok);
        if
        :: ok ->
           d_step { acknowledged(me) };
           GRACE(me);
           write_each(V, REMOVED, ok)
        :: else
        fi
     :: else
     fi;
     d_step { x = 0; ok = 0 }
  ::                                      /* remove the marker */
#ifdef BUG_VERSION_FIRST
     atomic { read_each(V, x) };
     if :: NONE(x) -> atomic { read_each(U, x) }; ok = (x == 3) :: else fi;
#else
#ifdef BUG_NO_UPLOADS
     ok = true;
#else
     atomic { read_each(U, x) };
#ifdef BUG_OPEN_ONLY
     ok = (x != 1);
#else
     ok = (x == 3);
#endif
#endif
     if :: ok -> atomic { read_each(V, x) }; ok = NONE(x) :: else fi;
#endif
     if :: ok -> write_each(M, 2, ok) :: else fi;
     d_step { x = 0; ok = 0 }
  od;
  left--
}
#ifdef PROBE                  /* must be reachable */
proctype probe() {
  if
  :: PROBE == 1 && Q[M] == 2 && Q[V] == REMOVED -> assert(false)
  :: PROBE == 2 && Q[U] == 3 && SEEN(Q[V]) -> assert(false)
  :: PROBE == 3 && Q[M+1] == 2 && runs[0] -> assert(false)
  fi
}
#endif
init { atomic {
  Q[U] = 1; Q[U+1] = 1; Q[M] = 1; Q[M+1] = 1;
  run completion(0);
#if NCO > 1
  run completion(1);
#endif
  run cleaner(0);
#if NCL > 1
  run cleaner(1);
#endif
#ifdef PROBE
  run probe();
#endif
  run reader(); run world() } }
