/* Changing a term that all processes of a store share, such as the lease (spin model; run.sh beside this file).

   The term is one register. Each of its versions has a value in force, or announces a change: the value in force
   before, and the one to come. A read at Serial finds the newest version; one at Local finds what a data centre has
   seen, which may be older. An acknowledgement raises both data centres, one after the other, to the version that
   was the newest when it began, and may end between the two.

   A process that starts reads at Local. It runs if its own value is in force there; else the newest version decides,
   and it runs if its value is in force in that one, or if there was none and it has written its own. A process that
   changes the term announces the change, acknowledges that, puts the new value in force by a swap of the very
   version that it acknowledged, and runs. It resumes an announcement that it finds, takes it back, or replaces it by
   one of its own. It gives up where another value came into force since its first look. It may die at any step. A
   swap may be applied after its sender has gone on or died.

   The operator's promise: who starts a change has ended all processes, and starts no others until it has come up. So
   all end with its first look, and those with the value before, started meanwhile, with the acknowledgement.

   Asserted: all processes that run have the same value. That the new value is acknowledged, too, is not in the
   model: it spares others a read at Serial. */
#ifndef NCH
#define NCH 3                 /* changes, one after the other or at once */
#endif
#ifndef TRIES
#define TRIES 3               /* looks of a change */
#endif
#define NV 3                  /* values 1 to NV */
#define MAXV 9                /* versions */
byte n = 0;                   /* the newest version; 0: the register is absent */
byte val[MAXV+1], nxt[MAXV+1]; /* in force, or before; 0, or announced */
byte view[2];                 /* the version that each data centre shows */
bool up[NV+1];                /* whether a process with a value runs */
bool sent[NCH]; byte sfrom[NCH], sval[NCH], snxt[NCH]; /* a swap on its way */
byte done[NCH];               /* the version that it made */

inline runs(v) {              /* within atomic */
  up[v] = 1; assert(up[1] + up[2] + up[3] == 1)
}
inline swap(v, x) {           /* of the version `seen` */
  d_step { sent[i] = 1; sfrom[i] = seen; sval[i] = v; snxt[i] = x; done[i] = 0 }
}

inline forget() {             /* within atomic: versions that nobody reads any more */
  k = 1;
  do
  :: k < n && k < view[0] && k < view[1] -> val[k] = 0; nxt[k] = 0; k++
  :: else -> k = 0; break
  od
}

proctype world() {     /* swaps that land, data centres that catch up, processes that start */
  byte d, v, i, k;
  do
  :: atomic { select(i : 0 .. (NCH-1)); sent[i] ->
       if
       :: sfrom[i] == n -> n++; assert(n <= MAXV); val[n] = sval[i]; nxt[n] = snxt[i]; done[i] = n
       :: else
       fi; sent[i] = 0; sfrom[i] = 0; sval[i] = 0; snxt[i] = 0; forget(); i = 0 }
  :: atomic { select(d : 0 .. 1); view[d] < n -> view[d] = view[d] + 1; forget(); d = 0 }
  :: atomic { select(d : 0 .. 1); select(v : 1 .. NV);
       if
       :: view[d] > 0 && val[view[d]] == v && nxt[view[d]] == 0 ->
            runs(v);
#if PROBE == 1
            assert(nxt[n] == 0);
#endif
#if PROBE == 2
            assert(n < 3 || nxt[n] != 0 || view[1-d] > 2);
#endif
#ifdef BUG_TAKES_ANNOUNCED
       :: view[d] > 0 && nxt[view[d]] == v -> runs(v)
#endif
#ifdef BUG_TAKES_BEFORE
       :: view[d] > 0 && val[view[d]] == v && nxt[view[d]] != 0 -> runs(v)
#endif
       :: else -> if
         :: n == 0 -> n++; val[n] = v; if :: runs(v) :: skip fi
         :: n > 0 && val[n] == v && nxt[n] == 0 -> runs(v)
         :: else
         fi
       fi; d = 0; v = 0 }
  od
}

proctype changes(byte i) {
  byte mine, seen, from, tries, k;
  select(mine : 1 .. NV);
look:
  if
  :: tries == TRIES -> goto end
  :: tries < TRIES
  fi;
  atomic {
    seen = n;
    if
    :: tries == 0 -> from = val[n]; up[1] = 0; up[2] = 0; up[3] = 0
    :: else
    fi;
    tries++;
    if
    :: seen > 0 && nxt[seen] == 0 && val[seen] == mine -> runs(mine); goto end
#ifndef BUG_GOES_ON
    :: !(seen > 0 && nxt[seen] == 0 && val[seen] == mine) && val[seen] != from -> goto end
#endif
    :: else
    fi
  };
  if
  :: seen == 0 || nxt[seen] != 0 && val[seen] == mine -> swap(mine, 0) /* the first one, or it takes back */
  :: seen > 0 && nxt[seen] == mine ->
#ifdef BUG_RESUMES_UNACKNOWLEDGED
       goto force
#else
       goto acknowledge
#endif
  :: else ->
#ifdef BUG_ONE_STEP
       swap(mine, 0)
#else
       swap(val[seen], mine)
#endif
  fi;
  if
  :: goto end                 /* it dies; the swap may land later */
  :: goto look                /* it does not know */
  :: atomic { done[i] > 0 -> seen = done[i] }
  fi;
  if
  :: nxt[seen] == 0 -> goto inforce
  :: else
  fi;
#ifdef BUG_UNACKNOWLEDGED
  goto force;
#endif
acknowledge:
  if
  :: n > seen -> goto look
  :: atomic { n == seen -> view[0] = (view[0] < seen -> seen : view[0]) }
  fi;
  if
  :: goto end
  :: atomic { view[1] = (view[1] < seen -> seen : view[1]); up[from] = 0 }
  fi;
force:
  swap(mine, 0);
  if
  :: goto end
  :: goto look
  :: done[i] > 0
  fi;
inforce:
  atomic {
#ifdef BUG_ONE_STEP
    view[0] = n; view[1] = n; up[from] = 0;
#endif
    if
    :: n == done[i] -> runs(mine)
    :: else -> goto look
    fi;
#if PROBE == 3
    assert(from == 0 || from == mine);
#endif
  };
end:
  atomic { seen = 0; from = 0; tries = 0; mine = 0; done[i] = 0 }
}

init { atomic { byte i;
#ifndef ABSENT
  n = 1; val[1] = 1; view[0] = 1; view[1] = 1;
#endif
  run world(); for (i : 0 .. (NCH-1)) { run changes(i) } } }
