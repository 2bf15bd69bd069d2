/* The common time of two data centres: what a stamp in one of them has to cover of the clocks of the other
   (spin model; run.sh beside this file). time.pml has what happens within one.

   Time goes in ticks, which the near clock and the process's own count. A far clock is told by how far it is ahead of
   the near one; it may run a tick faster or slower, once in DR ticks. A process asks the far servers now and then. A
   question is A ticks on its way there, or up to JIT more, and its answer B ticks back, or up to JIT more. Of an answer
   it is known how long ago the question was sent, how long the round trip took, and what the clock showed in between.
   So the clock is at most what it showed and the time since the question was sent, at the highest speed. A stamp covers
   that bound for a majority of the far servers, less half of the fastest round trip. In a cut nothing is asked, for as
   long as ages are counted (OLD).

   X is acknowledged in the far data centre: a majority of the clocks there have passed its stamp. NEWS ticks later Y
   begins in the near one: after each tick both are tried. (Of what was acknowledged so long ago or longer, the last has
   the highest stamp.) Asserted: Y has the higher stamp.

   That holds if a question on its way there and the news on its way back take no less, together, than half of the
   fastest round trip. So the first question and its answer are late by JFIRST ticks each at most. Or half of the round
   trip is bounded by NEWS: -DBOUND, for what is known by waiting, as movers do, and needs no way.

   A data centre whose clocks are known to differ by more than LIMIT is refused: nothing is stamped. Where too few have
   answered the stamp covers what is LIMIT ahead of the near clock: the far clocks are assumed to differ by no more.

   -DPROBE=1          reached: Y is above X, which is above the near clock; 2: Y is refused; 3: like 1, in a cut
   -DBUG_NEAR_ONLY    a stamp covers the near clock only
   -DBUG_RECEIPT      the clock is taken to have shown the answer when that was received
   -DBUG_WHOLE_TRIP   the bound less the whole round trip: no margin for news that is faster than the answer
   -DBUG_SLOWEST      less half of the slowest round trip
   -DBUG_LOW_ENDS     the highest lower bound and half of the fastest round trip, instead of the upper bound less that
   -DBUG_NO_DRIFT     bounds are carried on at the speed of the near clock
   -DBUG_FORGET       old answers do not count, though they say that a clock is more than LIMIT ahead
   -DBUG_CAP          a far clock is covered up to LIMIT ahead, and not refused
   -DBUG_ONE_SERVER   one far server is enough
   -DBUG_UNBOUNDED    half of the round trip is not bounded, with -DBOUND */

#ifndef NS
#define NS 1            /* far servers: 1 or 3 */
#endif
#ifndef A
#define A 2             /* the fastest way there */
#endif
#ifndef B
#define B 2             /* and back */
#endif
#ifndef JIT
#define JIT 1           /* how late either may be */
#endif
#ifndef JFIRST
#define JFIRST JIT      /* the same, with the first question */
#endif
#ifndef NEWS
#define NEWS 1          /* the way of the news */
#endif
#ifndef DR
#define DR 5            /* a tick of drift in so many; 0: none */
#endif
#ifndef NQ
#define NQ 2            /* questions to each server */
#endif
#ifndef OLD
#define OLD 15          /* the age of questions up to which the search goes */
#endif
#ifndef LIMIT
#define LIMIT 3
#endif
#ifndef AHEAD
#define AHEAD 2         /* far clocks are up to so far ahead of the near one, or behind, at first */
#endif
#define NONE 120
#ifdef BUG_FORGET
#define FORGET 8
#else
#define FORGET OLD
#endif

short ahead[NS];        /* the far clocks, less the near one */
byte since[NS];         /* ticks since a clock ran faster or slower */
short was[NEWS+1];      /* the middle of ahead, so many ticks ago */

/* questions to each server, and their answers */
byte n[NS];             /* that were sent */
byte way[NS];           /* ticks until the last one, or its answer, arrives; 0: none is under way */
bit back[NS];           /* it is the answer */
byte age[NS*NQ];        /* since the question was sent */
short showed[NS*NQ];    /* what the clock showed, less what the near one did when the question was sent */
byte trip[NS*NQ];       /* 0: not answered yet */

#if DR > 0
#define DRIFT(d) (((d) + DR - 1) / DR)
#else
#define DRIFT(d) 0
#endif
#define MIN(p, q) ((p) < (q) -> (p) : (q))
#define MAX(p, q) ((p) > (q) -> (p) : (q))
/* the only one, or the second of three: a majority is not above it, and one is not below it */
#if NS == 1
#define MIDDLE(v) v[0]
#else
#define MIDDLE(v) MAX(MIN(v[0], v[1]), MIN(MAX(v[0], v[1]), v[2]))
#endif

byte i, k, known, fastest, slowest, oldest, half;
hidden short low[NS], high[NS];
short m, x, y, l;
bit refused;

/* X was acknowledged NEWS ticks ago, and Y begins. All times are less the near clock. */
inline try() {
  x = was[NEWS] - NEWS;
  i = 0; known = 0; fastest = NONE; slowest = 0; oldest = 0;
  do
  :: i < NS ->
     k = 0; high[i] = NONE; low[i] = -NONE;
     do
     :: k < NQ && trip[i*NQ + k] > 0 && age[i*NQ + k] <= FORGET ->
        fastest = MIN(fastest, trip[i*NQ + k]);
        slowest = MAX(slowest, trip[i*NQ + k]);
        oldest = MAX(oldest, age[i*NQ + k]);
        l = age[i*NQ + k];
        m = showed[i*NQ + k];
#ifdef BUG_RECEIPT
        l = l - trip[i*NQ + k];
        m = m - trip[i*NQ + k];
#endif
#ifndef BUG_NO_DRIFT
        m = m + DRIFT(l);
#endif
        high[i] = MIN(high[i], m);
        l = age[i*NQ + k] - trip[i*NQ + k];
        m = showed[i*NQ + k] - trip[i*NQ + k] - DRIFT(l);
        low[i] = MAX(low[i], m);
        k++
     :: else -> break
     od;
     if :: high[i] != NONE -> known++ :: else fi;
     i++
  :: else -> break
  od;
  half = fastest / 2;
#ifdef BUG_WHOLE_TRIP
  half = fastest;
#endif
#ifdef BUG_SLOWEST
  half = slowest / 2;
#endif
#if defined(BOUND) && !defined(BUG_UNBOUNDED)
  half = MIN(half, NEWS);
#endif
  y = 0; refused = 0;
  if
  :: 2*known > NS ->
     m = MIDDLE(high) - half;
#ifdef BUG_ONE_SERVER
     m = MIN(MIN(high[0], high[1]), high[2]) - half;
#endif
#ifdef BUG_LOW_ENDS
     m = MIDDLE(low) + half;
#endif
#ifdef BUG_CAP
     m = MIN(m, LIMIT);
#else
     refused = (MIDDLE(low) > LIMIT || MIDDLE(high) < -LIMIT);
#endif
     y = MAX(y, m)
  :: else ->
     y = LIMIT;
     refused = (was[NEWS] > LIMIT && (FORGET == OLD || trip[0] == 0)) /* what is assumed does not hold */
  fi;
#ifdef BUG_NEAR_ONLY
  y = 0;
#endif
#if defined(PROBE) && PROBE == 1
  assert(refused || 2*known < NS || x < 0 || y < x);
#elif defined(PROBE) && PROBE == 2
  assert(!refused || 2*known < NS);
#elif defined(PROBE) && PROBE == 3
  assert(refused || 2*known < NS || x < 0 || y < x || oldest < 12);
#endif
  assert(refused || y + 1 > x);
  i = 0; k = 0; known = 0; fastest = 0; slowest = 0; oldest = 0; half = 0; m = 0; x = 0; y = 0; l = 0; refused = 0
}

active proctype all() {
  do /* the clocks differ to begin with */
  :: i < NS -> atomic {
       if :: ahead[i] = -AHEAD :: ahead[i] = 0 :: ahead[i] = 1 :: ahead[i] = AHEAD fi;
       since[i] = DR; i++ }
  :: else -> break
  od;
  atomic {
    i = 0;
    do :: i <= NEWS -> was[i] = MIDDLE(ahead); i++ :: else -> break od;
    i = 0
  };
  do
  :: atomic {
       /* questions are sent */
       do
       :: i < NS ->
          if
          :: way[i] == 0 && n[i] < NQ ->
             if :: way[i] = A :: way[i] = A + ((n[i] == 0) -> JFIRST : JIT) fi;
             back[i] = 0; n[i]++
          :: true
          fi;
          i++
       :: else -> break
       od;
       i = 0;
       d_step { try() };
       /* a tick */
       i = NEWS;
       do :: i > 0 -> was[i] = was[i-1]; i-- :: else -> break od;
       do
       :: i < NS ->
          if
          :: since[i] = MIN(since[i] + 1, DR)
#if DR > 0
          :: since[i] >= DR && ahead[i] < AHEAD + OLD/DR -> since[i] = 1; ahead[i]++
          :: since[i] >= DR && ahead[i] > -AHEAD - OLD/DR -> since[i] = 1; ahead[i]--
#endif
          fi;
          k = 0;
          do
          :: k < n[i] -> age[i*NQ + k]++; (age[i*NQ + k] <= OLD); k++
          :: else -> k = 0; break
          od;
          if
          :: way[i] > 0 ->
             way[i]--; l = i*NQ + n[i] - 1;
             if
             :: way[i] == 0 && !back[i] -> /* the question has arrived */
                showed[l] = ahead[i] + age[l]; back[i] = 1;
                if :: way[i] = B :: way[i] = B + ((n[i] == 1) -> JFIRST : JIT) fi
             :: way[i] == 0 && back[i] -> trip[l] = age[l]; back[i] = 0
             :: else
             fi;
             l = 0
          :: else
          fi;
          i++
       :: else -> i = 0; break
       od;
       was[0] = MIDDLE(ahead)
     }
  od
}
