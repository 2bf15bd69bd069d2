/* The common time: timestamps of writes, from the clocks of three servers.

   A process knows of each clock an interval that holds it. A write is stamped above the highest upper end of a majority,
   and acknowledged when the lowest lower end of a majority has passed the stamp. Here the intervals are points: upper
   ends that are higher give higher stamps, and lower ends that are lower give later acknowledgements, so what is wrong
   with any interval that holds the clock is wrong with the clock itself. The majorities are chosen anew, by chance,
   by each process and for each end. Asserted: a write that began after another one was acknowledged has the higher stamp.

   With -DJOIN two servers of five have just joined. The first process does not know them yet, and takes two of three;
   the others have listed all five for less than a minute, and take four.

   That clocks do not go back is assumed: -DSET_BACK shows what happens when one does, if the others differ.

   -DSET_BACK        the clock of server 2 is set back
   -DPROBE=1         reached: a stamp above an acknowledged one; 2: writes that are acknowledged in another order
   -DBUG_NO_PASSING  acknowledged at once
   -DBUG_ONE_SERVER  one server is enough
   -DBUG_MAJORITY    with -DJOIN: who knows all five takes a majority of them
   -DBUG_STILL       the upper end is that of an earlier moment */

#ifndef NP
#define NP 3            /* processes */
#endif
#ifndef NW
#define NW 2            /* writes of each */
#endif
#ifndef T
#define T 5             /* where clocks end */
#endif
#ifdef JOIN
#define NS 5
#define OLD (_pid == 2) /* after init and the servers */
#define ENOUGH (OLD -> 2 : ALL)
#ifdef BUG_MAJORITY
#define ALL 3
#else
#define ALL 4
#endif
#define JOINED + (!OLD && c[3] > stamp) + (!OLD && c[4] > stamp)
#else
#define NS 3
#define JOINED
#ifdef BUG_ONE_SERVER
#define ENOUGH 1
#else
#define ENOUGH 2
#endif
#endif

byte c[NS];             /* the servers' clocks */
byte acked;             /* the highest acknowledged stamp */
byte done;              /* processes that have ended */

/* two of three servers */
inline choose(x, y) {
#ifdef BUG_ONE_SERVER
  if :: x = 0; y = 0 :: x = 1; y = 1 :: x = 2; y = 2 fi
#else
  if :: x = 0; y = 1 :: x = 0; y = 2 :: x = 1; y = 2 fi
#endif
}

proctype servers() {
  do
  :: atomic { c[0] < T -> c[0]++ }
  :: atomic { c[1] < T -> c[1]++ }
  :: atomic { c[2] < T -> c[2]++ }
#ifdef JOIN
  :: atomic { c[3] < T -> c[3]++ }
  :: atomic { c[4] < T -> c[4]++ }
#endif
#ifdef SET_BACK
  :: atomic { c[2] > 0 -> c[2] = 0 }
#endif
  :: done == NP -> break
  od
}

#ifdef JOIN
/* above the highest clock of some servers: all but one, or but two, of five, or but one of three. x and y are left out */
#define AT(i) (i != x && i != y -> c[i] : 0)
#define HIGHER(a, b) (a > b -> a : b)
inline draw() {
  if
  :: OLD -> y = NS; if :: x = 0 :: x = 1 :: x = 2 fi
  :: !OLD -> if :: x = 0 :: x = 1 :: x = 2 :: x = 3 :: x = 4 fi; y = NS
#ifdef BUG_MAJORITY
     ; if :: y = 0 :: y = 1 :: y = 2 :: y = 3 :: y = 4 fi
#endif
  fi;
  stamp = HIGHER(AT(0), AT(1));
  stamp = HIGHER(stamp, AT(2));
  if
  :: !OLD -> stamp = HIGHER(stamp, AT(3)); stamp = HIGHER(stamp, AT(4))
  :: else
  fi;
  stamp++; x = 0; y = 0
}
#else
inline draw() {
  choose(x, y);
  if :: c[x] > c[y] -> stamp = c[x] + 1 :: else -> stamp = c[y] + 1 fi;
  x = 0; y = 0
}
#endif

proctype process() {
  byte n, x, y, stamp;
  do
  :: n < NW ->
#ifdef BUG_STILL
     atomic { draw() };
#endif
     atomic { /* it begins */
#ifndef BUG_STILL
       draw();
#endif
#if defined(PROBE) && PROBE == 1
       assert(!(acked > 0 && stamp > acked));
#endif
       assert(stamp > acked) };
     if
     :: atomic {
#ifndef BUG_NO_PASSING
          (c[0] > stamp) + (c[1] > stamp) + (c[2] > stamp) JOINED >= ENOUGH ->
#endif
#if defined(PROBE) && PROBE == 2
          assert(!(acked > stamp));
#endif
          if :: stamp > acked -> acked = stamp :: else fi; n++; stamp = 0 }
     :: atomic { n++; stamp = 0 } /* its outcome is unknown */
     fi
  :: else -> break
  od;
  done++
}

init {
  byte i;
  atomic { /* the clocks differ to begin with */
    do :: i < NS -> if :: c[i] = 0 :: c[i] = 1 :: c[i] = 2 fi; i++ :: else -> break od;
    run servers();
    i = 0; do :: i < NP -> run process(); i++ :: else -> break od
  }
}
