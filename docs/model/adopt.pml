/* One key of a table whose rows come to a bucket while the application changes both: docs/adopt.md, listing/bring.go.

   The application writes to the table first, then to the bucket (-DALONE: to the table alone, and it has stopped before
   the last catch-up). Its clock may be anywhere, so a row's write time in the table is low or high. The copier reads the
   row and writes it to the bucket; a catch-up makes the bucket like the table; both may end at any step and begin anew.
   Timestamps of the bucket are of one common time (time.pml): each draw is higher than all before it. A row is written
   under a lease on a map of some epoch: when the epoch has changed, a write that is still under way can't be seen any
   more (objects-move.pml has the rows that a move carries at old timestamps, and late ones). A move begins with a new
   epoch, and forgets deletions of earlier epochs, at any moment.

   Asserted, whenever the application has nothing under way: the bucket shows what it wrote last, and after a catch-up
   that began after that, so does a bucket that the application does not write to.

   -DPROBE=1          reached: an old row that comes after a delete; 2: one that is refused, as the map has changed;
                      3: a catch-up that deletes; 4: one that puts
   -DBUG_OWN_TIME     a row keeps a write time above the mark
   -DBUG_NO_EPOCH     a row is written whatever the map is
   -DBUG_LATE_MARK    the mark is taken after the table was read
   -DBUG_BUCKET_FIRST the application writes to the bucket first
   -DBUG_OLD_TIME     a catch-up puts at the row's write time
   -DFILE             the source is a file, read before all marks; the application writes to the bucket alone
   -DBUG_FILE         a file's row is written whatever has moved since its time
   -DTABLE_FIRST      a catch-up reads the table before the bucket, which is no mistake: the mark is before both */

#ifndef OPS
#define OPS 3           /* changes by the application; the first is the row that is there */
#endif
#ifndef RUNS
#define RUNS 2          /* copies and catch-ups */
#endif
#ifndef MOVES
#define MOVES 2
#endif
#define HIGH 60         /* a write time above all of the common time */
#define OLD 1           /* one below */

byte now = 2;           /* the common time: drawn last */
byte epoch = 1;
byte table, written;    /* what the table shows: a change's number, 0 for nothing; and its write time */
byte cell, stamp;       /* the key in the bucket: a change's number or 0, and its timestamp, 0 for none */
byte deleted;           /* the epoch in which the key was deleted, if cell is 0 */
byte last = 1;          /* what the application wants to be seen: a change's number, or 0 */
bool busy, synced;      /* a change is under way; since the last one the bucket was made like the table */
bool both;              /* the application has written the key to both */

/* the bucket takes a change at a timestamp: the later one wins, of equal ones the deletion */
inline take(v, ts) {
  if
  :: ts > stamp || ts == stamp && v == 0 -> cell = v; stamp = ts; if :: v == 0 -> deleted = epoch :: else fi
  :: else
  fi
}

inline in_table(n, v) {
  atomic {
    table = v;
    if :: v == 0 -> written = 0 :: else -> if :: written = OLD :: written = HIGH fi fi
  }
}

inline in_bucket(v) {
  atomic { now++; drawn = now };
  atomic { take(v, drawn); drawn = 0 }
}

proctype application() {
  byte n = 2, v, drawn;
  do
  :: n <= OPS ->
    atomic { busy = true; synced = false; if :: v = n :: v = 0 fi };
#ifdef FILE
    in_bucket(v);
#elif defined(BUG_BUCKET_FIRST)
    in_bucket(v);
    in_table(n, v);
#else
    in_table(n, v);
#ifndef ALONE
    in_bucket(v);
#endif
#endif
    atomic {
      last = v; busy = false; n++; v = 0;
#ifndef ALONE
      both = true
#endif
    }
  :: else -> break
  od
}

proctype mover() {
  byte n;
  do
  :: atomic { n < MOVES -> n++; epoch++ }
  :: n == MOVES -> break
  od
}

/* deletions of earlier epochs are forgotten at any moment, or never */
proctype forgets() {
end:
  do
  :: atomic { stamp > 0 && cell == 0 && deleted < epoch -> stamp = 0; deleted = 0 }
  od
}

inline mark() { atomic { now++; t = now; e = epoch } }

#if defined(BUG_NO_EPOCH)
#define SAME true
#elif defined(FILE) && !defined(BUG_FILE)
#define SAME (epoch == e && e == 1) /* nothing has moved since the time of the rows */
#else
#define SAME (epoch == e)
#endif

/* one page: the mark, the reads, the write. It may end at any step; the lease of a write covers its arrival. */
proctype adopter() {
  byte runs, t, e, row, time, there;
  bool quiet;
  do
  :: runs < RUNS ->
    runs++;
    if
    :: true -> /* a copy */
#ifndef BUG_LATE_MARK
      mark();
#endif
      atomic { row = table; time = written };
#ifdef BUG_LATE_MARK
      mark();
#endif
#ifndef BUG_OWN_TIME
      if :: time > t -> time = t :: else fi;
#endif
      if
      :: row == 0
      :: true /* it ends here, or its write is lost */
      :: atomic { row != 0 && SAME ->
#if defined(PROBE) && PROBE == 1
        assert(!(cell == 0 && stamp > time));
#endif
        take(row, time) }
#if defined(PROBE) && PROBE == 2
      :: atomic { row != 0 && epoch != e -> assert(false) }
#endif
      fi
#ifndef FILE
    :: true -> /* a catch-up */
      atomic { quiet = !busy; mark() };
#ifdef TABLE_FIRST
      atomic { row = table; time = written };
      there = cell;
#else
      there = cell;
      atomic { row = table; time = written };
#endif
      if
      :: true
      :: atomic { there == row && SAME -> synced = quiet && !busy && last == row }
      :: atomic { there != row && row != 0 && SAME ->
#if defined(PROBE) && PROBE == 4
        assert(false);
#endif
#ifdef BUG_OLD_TIME
        if :: time > t -> time = t :: else fi;
        take(row, time);
#else
        take(row, t);
#endif
        synced = quiet && !busy && last == row }
      :: atomic { there != row && row == 0 && SAME ->
#if defined(PROBE) && PROBE == 3
        assert(false);
#endif
        take(0, t);
        synced = quiet && !busy && last == row }
      fi
#endif
    fi;
    atomic { t = 0; e = 0; row = 0; time = 0; there = 0; quiet = false }
  :: else -> break
  od
}

/* what the application has written to both stays seen, and what a catch-up has compared */
proctype observer() {
  atomic { !busy && (both || synced) && cell != last -> assert(false) }
}

init {
  atomic {
    table = 1;
#ifdef FILE
    written = OLD;
#else
    if :: written = OLD :: written = HIGH fi;
#endif
    run application(); run mover(); run forgets(); run adopter(); run observer()
  }
}
