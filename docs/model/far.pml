/* One key of a range that moves from partition A to B, in two data centres: clients read and write in their own one.

   A partition holds one last-write-wins cell in each data centre. Row 1 is in A everywhere before the move; its plain delete,
   2, is acknowledged in data centre 1 before the move, and comes to 0 at any time, or after the move. Row 3 is a put of
   unknown outcome: it lands in A in data centre 0 at any time, and later in 1. The mover reads and writes both at once, and
   its reads repair nothing. Phases: 1 marking, 2 copying, 3 verifying, 4 draining, 5 settled on B. A reader holds its lease
   for all of a read, so the phase stays. Leases that expire, markers, and copies that A has lost are in move.pml.

   What only A has is confirmed in both data centres before a reader in 3 writes it to B. While that fails the reader shows
   it, and writes nothing. Asserted: row 1 is never in B after the move, nor seen by a reader of data centre 1; what a
   reader has confirmed or found in B is seen by all later ones of its data centre.

   -DPROBE=1          reached: a reader writes row 3 to B; 2: it finds that row 1 was deleted elsewhere; 3: it shows it during a cut
   -DBUG_LOCAL        what only A has is written to B as this data centre has it
   -DBUG_CUT          so it is while the other data centre can't be read
   -DBUG_NEVER        what only A has is never written to B */

byte A[2], B[2];        /* the newest timestamp in each data centre */
byte phase = 1, busy, shown[2];
bool cut, ended;

#define seen(v) ((v) == 2 -> 0 : (v))           /* 2 is a plain delete */
#define most(P) (P[0] > P[1] -> P[0] : P[1])    /* what a read of both finds */
#define put(cell, v) cell = (cell > v -> cell : v)

proctype link() {       /* delivers what one data centre has and the other lacks */
  do
  :: atomic { !cut -> if :: put(A[0], A[1]) :: put(A[1], A[0]) :: put(B[0], B[1]) :: put(B[1], B[0]) fi }
  :: atomic { !cut && phase < 5 -> cut = true }
  :: atomic { cut -> cut = false }
  :: ended -> break
  od
}

proctype late() {       /* row 3, or nothing */
  if :: atomic { put(A[0], 3) } :: skip fi
}

proctype mover() {
  byte v;
  do
  :: phase == 1 -> atomic { busy == 0 -> phase = 2 }
  :: phase == 2 || phase == 3 ->
     atomic { !cut -> v = seen(most(A)) };
     atomic { !cut -> put(B[0], v); put(B[1], v); v = 0 };
     atomic { busy == 0 -> phase++ }
  :: phase == 4 -> atomic { busy == 0 -> phase = 5 }
  :: phase == 5 -> break
  od
}

proctype reader(byte d) {
  byte n, a, b, e, lo; bool sure;
  do
  :: n < 2 ->
     atomic { n++; busy++; lo = shown[d]; sure = true };
     if
     :: phase < 4 -> a = seen(A[d]); b = seen(B[d])
     :: phase < 4 -> b = seen(B[d]); a = seen(A[d])
     :: phase >= 4 -> b = seen(B[d])
     fi;
     if
     :: phase == 3 && a > b ->
#ifdef BUG_LOCAL
        put(B[d], a)
#elif !defined(BUG_NEVER)
        if
        :: atomic { !cut -> e = seen(most(A));
#if defined(PROBE) && PROBE == 2
             assert(!(a == 1 && e == 0));
#endif
             a = e; e = 0 };
           if
           :: a > b ->
              atomic { put(B[d], a);
#if defined(PROBE) && PROBE == 1
                assert(a != 3);
#endif
              }
           :: else
           fi
        :: atomic { cut -> sure = false;
#if defined(PROBE) && PROBE == 3
             assert(a != 1);
#endif
             skip };
#ifdef BUG_CUT
           put(B[d], a)
#endif
        fi
#endif
     :: else
     fi;
     atomic {
       if :: b > a -> a = b :: else fi;
       assert(!(d == 1 && a == 1));
       assert(!(lo == 3 && a != 3));
       if :: phase >= 3 && sure && shown[d] < a -> shown[d] = a :: else fi;
       busy--; a = 0; b = 0; lo = 0; sure = false }
  :: n == 2 -> break
  od
}

init {
  atomic { A[0] = 1; A[1] = 2; run link(); run late(); run mover(); run reader(0); run reader(1) };
  phase == 5 && busy == 0;
  atomic { assert(B[0] != 1 && B[1] != 1); ended = true }
}
