/* Two ranges that merge into one fresh partition, of which one moves on (spin model; run.sh beside this file).

   Key 0 is in partition 0, key 1 in partition 1; both move to the fresh partition 2 in one batch, by the phases of move.pml
   (0 settled, 1 marking, 2 copying, 3 verifying, 4 draining, 5 settled on 2); then key 0 moves on to the fresh partition 3
   (5 settled, 6 marking, ... 10 settled on 3). A source is removed as a whole when no entry of the map names it any more as
   home or as source, else only the key's range. The removal's tombstone is above all timestamps: what comes later is invisible.

   Asserted: an acknowledged put or delete is seen by every read that begins later. */
#ifndef NC
#define NC 1
#endif
#ifndef K
#define K 2
#endif
#define SUB(v) (v % 5)
#define SRC(k, v) (v >= 10 -> 3 : (v >= 5 -> 2 : k))
#define DST(v) (v >= 5 -> 3 : 2)
#define HOME(k, v) (SUB(v) < 2 -> SRC(k, v) : DST(v))
#define REMOVED 254
#define PUT 1
#define DEL 2
#define MARK 3
#define at(p, k) P[(p) * 2 + (k)]
byte ph[2], epoch = 0;                      /* of key 0 and of key 1 */
byte P[8], kind[NC*K+1], about[NC*K+1], stamp = 1, acked[2];
byte v0[NC], v1[NC], ve[NC]; bool lease[NC];
#define view(id, k) (k == 0 -> v0[id] : v1[id])
#define seen(p, k) (at(p, k) == REMOVED || kind[at(p, k)] == DEL -> 0 : at(p, k))

inline newest(q, c, w) { d_step { if :: at(q, c) < w -> at(q, c) = w :: else fi } }

proctype client(byte id) {
  byte n = 0, k, v, h, ts, a, b, lo; bool ok;
  do
  :: n < K && !lease[id] -> atomic { v0[id] = ph[0]; v1[id] = ph[1]; ve[id] = epoch; lease[id] = 1 }
  :: lease[id] && ve[id] != epoch -> lease[id] = 0
  :: n < K && lease[id] ->
     n++;
     atomic { if :: k = 0 :: k = 1 fi; v = view(id, k) };
     if
     :: atomic { ts = stamp; stamp++; about[ts] = k; if :: kind[ts] = PUT :: kind[ts] = (SUB(v) == 0 -> DEL : MARK) fi };
        h = HOME(k, v); newest(h, k, ts);
        atomic { if :: acked[k] < ts -> acked[k] = ts :: else fi; ts = 0 }
     :: lo = acked[k];
        if
        :: SUB(v) == 0 -> h = SRC(k, v); a = seen(h, k)
        :: SUB(v) == 4 -> h = DST(v); b = seen(h, k)
        :: SUB(v) > 0 && SUB(v) < 4 -> h = SRC(k, v); a = seen(h, k); h = DST(v); b = seen(h, k)
        fi;
        atomic { if :: a < b -> a = b :: else fi;
          if :: a > 0 && kind[a] == PUT -> assert(a >= lo)
             :: else -> ok = (lo == 0); h = lo;   /* absent: some delete that is not older must have been begun */
                do :: h > 0 && h < stamp -> if :: kind[h] != PUT && about[h] == k -> ok = true :: else fi; h++ :: else -> break od;
                assert(ok); ok = false; h = 0
          fi;
          a = 0; b = 0; lo = 0 }
     fi;
     atomic { k = 0; v = 0; h = 0 }
  :: n == K -> lease[id] = 0; break
  od
}

inline await() { !(lease[0] && ve[0] < epoch) && !(lease[NC-1] && ve[NC-1] < epoch) }
inline copy(k) { h = SRC(k, ph[k]); r = seen(h, k); h = DST(ph[k]); if :: r > 0 -> newest(h, k, r) :: else fi; r = 0; h = 0 }
inline clear(k) { d_step {
  h = SRC(k, ph[k]); r = SRC((1 - k), ph[1 - k]);
  at(h, k) = REMOVED;
  if :: r != h -> at(h, (1 - k)) = REMOVED  /* the map names it for nothing else: all of it goes */
     :: else
#if defined(PROBE) && PROBE == 2
        -> assert(false)                    /* of two keys in one partition one has moved on */
#endif
  fi; r = 0; h = 0 } }
inline work(k) {
  if
  :: SUB(ph[k]) == 2 || SUB(ph[k]) == 3 -> copy(k)
  :: SUB(ph[k]) == 4 -> clear(k)
  :: SUB(ph[k]) == 0 && ph[k] > 0 ->        /* sweep */
     d_step { h = SRC(k, ph[k]); r = at(h, k); if :: r > 0 && r != REMOVED && kind[r] == MARK -> kind[r] = DEL :: else fi; r = 0; h = 0 }
  :: else
  fi
}

proctype mover() {
  byte r, h;
  do
  :: ph[0] == 10 && ph[1] == 5 -> break
#ifdef BUG_MIXED
  :: ph[0] < 10 -> await(); work(0); atomic { ph[0]++; epoch++ }   /* each source in phases of its own */
  :: ph[1] < 5 -> await(); work(1); atomic { ph[1]++; epoch++ }
#else
  :: ph[0] < 5 -> await(); work(0); work(1);
#if defined(PROBE) && PROBE == 1
     assert(!(ph[0] == 3 && at(2, 0) > 0 && at(2, 1) > 0 && kind[at(2, 1)] == MARK));
#endif
     atomic { ph[0]++; ph[1]++; epoch++ }
  :: ph[0] >= 5 && ph[0] < 10 -> await(); if :: ph[0] == 5 -> work(1) :: else fi; work(0); atomic { ph[0]++; epoch++ }
#endif
  od
}

init { atomic { byte i = 0; do :: i < NC -> run client(i); i++ :: else -> break od; run mover(); i = 0 } }
