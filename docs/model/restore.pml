/* One key of a bucket that is restored from snapshots of two moments, and then repaired: docs/damage.md ("After a
   restore"), internal/rebalance/repair. The map and each partition are restored as of either moment; with -DROWS all
   rows as of one.

   A range lives in partition 0 and moves to 1, 2 and so on; each is fresh. A timestamp is the number of a change; one
   removal stands for all of the keys around. Readers, waits and late writes are in move.pml.

   Asserted after --adopt-all: what was acknowledged before the older snapshot is listed, or a later change of it; what
   was deleted before is not. That is only so if, between the snapshots, no row is both copied and removed from its
   source (-DFAR: it is), and no second move drains (-DTWICE: it does). With -DROWS the rows of their moment are listed.
   So it is after --adopt (-DNEWER), beside an old source whose removal was lost. What can't be told apart is kept.

   -DPROBE=1        reached: a row is adopted into a home that a move has emptied; 2: a row is kept, as a removal hides
                    it that is no move's; 3: a row stays deleted in its home; 4: an old source is not adopted;
                    5: a copy is newer than its source
   -DOLD            moves leave no note: rows are kept, but none is lost and none comes back
   -DBUG_TOMBSTONE  a home in which a removal hides a row was emptied by a move
   -DBUG_EARLY      the note is written before the removal is decided
   -DBUG_LATE       the note is written after the removal
   -DBUG_FORGET     a note is forgotten before the later snapshot
   -DBUG_UNCONFIRMED  copies whose source is of an earlier moment are left to the move
   -DBUG_ANY        a home that a move has emptied is proof for every partition */

#ifndef OPS
#define OPS 4           /* puts, deletes and purges */
#endif
#ifndef MOVES
#define MOVES 2
#endif
#ifdef TWICE
#define DRAINS 2        /* moves that drain between the snapshots */
#else
#define DRAINS 1
#endif
#ifdef NEWER
#define ROWS
#endif
#define N 4             /* partitions; the last one is for a home that the repair renews */

typedef part {
  byte cell;            /* the number of the change that the row is of; 0: none */
  bool marker;          /* the row is a marker */
  bool copied;          /* the row is a copy, which counts only while the source of the move has it */
  byte dead;            /* rows up to it are hidden by a tombstone of the key */
  byte removed;         /* rows up to it are hidden by a removal of a range */
  byte to;              /* the note: the range was moved to this partition; 0: none */
};
typedef copy {
  part p[N];
  byte home, phase;
};
#define SETTLED 0
#define COPYING 1       /* writes go to the destination; deletes are markers there */
#define COMPARED 2      /* the same, once all is copied */
#define DRAINING 3
#define NOTED 4         /* draining, between the note and the removal */
#define REMOVED 5

copy now, first, second;
part zombie;            /* what the old source had that comes back */
byte back = N;          /* the old source */
byte n, moves, drains;  /* changes and moves so far; moves that drain between the snapshots */
byte taken;             /* snapshots so far */
bool copied;            /* a move copies between the snapshots */
byte value;             /* what is listed: a change's number, or 0 */
byte last, before;      /* the same, and all changes, at the older snapshot */
bool gone;              /* the key was deleted since the older snapshot */
byte i, to;
bool kept, proven[N], more;

#define visible(x) (now.p[x].cell > now.p[x].dead && now.p[x].cell > now.p[x].removed)

/* a row arrives in a partition */
#define put(x, v, m) \
  if :: v > now.p[x].cell -> now.p[x].cell = v; now.p[x].marker = m; now.p[x].copied = false :: else fi
/* the source's row is copied */
#define copy_row() \
  if \
  :: visible(now.home) && now.p[now.home].cell > now.p[now.home + 1].cell -> \
    put(now.home + 1, now.p[now.home].cell, now.p[now.home].marker); \
    now.p[now.home + 1].copied = !now.p[now.home].marker \
  :: else \
  fi

inline change() {
  atomic {
    n++; i = (now.phase == SETTLED -> now.home : now.home + 1);
    if
    :: put(i, n, false); value = n
    :: value = 0; gone = true;
      if
      :: now.phase == SETTLED -> now.p[i].dead = n
      :: else -> put(i, n, true)
      fi
    :: now.phase == SETTLED -> value = 0; gone = true; now.p[i].removed = n /* a purge */
    fi;
    i = 0
  }
}

inline note() { now.p[now.home].to = now.home + 1 }
inline remove() {
#ifdef NEWER
  if
  :: back == N && visible(now.home) ->
    back = now.home; zombie.cell = now.p[now.home].cell; zombie.marker = now.p[now.home].marker
  :: true
  fi;
#endif
  now.p[now.home].removed = 20; now.p[now.home].cell = 0
}

#ifdef BUG_LATE
#define FIRST remove()
#define SECOND note()
#else
#if defined(OLD) || defined(BUG_EARLY)
#define FIRST skip
#else
#define FIRST note()
#endif
#define SECOND remove()
#endif
#if defined(ROWS) || defined(FAR)
#define REMOVES true
#else
#define REMOVES (taken != 1 || !copied)
#endif
#ifdef ROWS
#define DRAINS_NOW true
#else
#define DRAINS_NOW (taken != 1 || drains < DRAINS)
#endif

inline step() {
  atomic {
    if
    :: now.phase == SETTLED && moves < MOVES ->
      moves++; now.phase = COPYING;
#ifdef BUG_EARLY
      note()
#endif
    :: now.phase == COPYING ->
      now.phase = COMPARED; copied = taken == 1;
      copy_row()
    :: now.phase == COMPARED && DRAINS_NOW ->
      now.phase = DRAINING;
      if :: taken == 1 -> drains++ :: else fi
    :: now.phase == DRAINING && REMOVES -> now.phase = NOTED; FIRST
    :: now.phase == NOTED && REMOVES -> now.phase = REMOVED; SECOND
    :: now.phase == REMOVED -> /* and the sweep: a marker becomes a tombstone */
      now.phase = SETTLED; now.home++; copied = false;
      if
      :: visible(now.home) && now.p[now.home].marker ->
        now.p[now.home].dead = now.p[now.home].cell; now.p[now.home].cell = 0; now.p[now.home].marker = false
      :: else
      fi
#ifdef BUG_FORGET
    :: now.home > 0 && now.p[now.home - 1].to > 0 -> now.p[now.home - 1].to = 0
#endif
    fi
  }
}

#define assign(x, y) \
  x.cell = y.cell; x.marker = y.marker; x.dead = y.dead; x.removed = y.removed; x.to = y.to; \
  x.copied = y.copied
#define snapshot(x) \
  i = 0; \
  do :: i < N -> assign(x.p[i], now.p[i]); i++ :: else -> break od; \
  x.home = now.home; x.phase = now.phase; i = 0

/* the restored copy replaces what is there */
inline restore() {
  i = 0; more = true;
#ifndef NEWER
  if :: more = false :: true fi; /* of which moment all rows are */
#endif
  do
  :: i < N ->
#ifdef ROWS
    if :: more -> assign(now.p[i], second.p[i]) :: else -> assign(now.p[i], first.p[i]) fi;
#else
    if :: assign(now.p[i], first.p[i]) :: assign(now.p[i], second.p[i]) fi;
#endif
    i++
  :: else -> break
  od;
#ifdef ROWS
  if :: more :: else -> value = last fi;
#endif
  if
  :: now.home = first.home; now.phase = first.phase
  :: now.home = second.home; now.phase = second.phase
  fi;
#ifdef NEWER
  if /* the old source comes back, if the map does not name it any more */
  :: back < now.home ->
    now.p[back].removed = 0; now.p[back].to = 0;
    now.p[back].cell = zombie.cell; now.p[back].marker = zombie.marker; now.p[back].copied = false
  :: back = N
  fi;
#endif
  i = 0
}

/* a move whose source is empty already is draining, whatever the map says; elsewhere a copy counts whose source is of
   an earlier moment */
inline confirm() {
  if
  :: (now.phase == COPYING || now.phase == COMPARED) && (now.p[now.home].to == now.home + 1 ||
     !visible(now.home) && visible(now.home + 1) && now.p[now.home + 1].copied) -> now.phase = DRAINING
  :: (now.phase == COPYING || now.phase == COMPARED) && visible(now.home) && visible(now.home + 1) &&
     now.p[now.home + 1].copied && now.p[now.home].cell < now.p[now.home + 1].cell ->
#if defined(PROBE) && PROBE == 5
    assert(false);
#endif
#ifdef BUG_UNCONFIRMED
    skip
#else
    now.p[now.home + 1].copied = false
#endif
  :: else
  fi
}

/* a move that the map has half done ends; a copy that its source has not is taken for deleted */
inline end_moves() {
  if
  :: now.phase != SETTLED ->
    if
    :: now.phase < DRAINING && visible(now.home + 1) && now.p[now.home + 1].copied &&
       !(visible(now.home) && now.p[now.home].cell >= now.p[now.home + 1].cell) ->
      now.p[now.home + 1].dead = now.p[now.home + 1].cell;
      now.p[now.home + 1].cell = 0; now.p[now.home + 1].copied = false
    :: else
    fi;
    copy_row();
    now.p[now.home].to = now.home + 1;
    now.p[now.home].removed = 20; now.p[now.home].cell = 0;
    now.home++; now.phase = SETTLED
  :: else
  fi
}

/* the partitions to which notes lead from the home */
inline prove() {
  i = now.home; more = true;
  do
  :: more && now.p[i].to > 0 && now.p[i].to < N && !proven[now.p[i].to] -> i = now.p[i].to; proven[i] = true
  :: else -> break
  od;
#ifdef BUG_ANY
  if :: now.p[now.home].to > 0 -> i = 0; do :: i < N -> proven[i] = true; i++ :: else -> break od :: else fi;
#endif
  i = 0
}

inline renew() {
  end_moves();
  if :: visible(now.home) -> put(N - 1, now.p[now.home].cell, now.p[now.home].marker) :: else fi;
  now.p[now.home].cell = 0; now.p[now.home].removed = 20;
  now.home = N - 1
}

#ifdef BUG_TOMBSTONE
#define EMPTIED(ts) (now.p[to].removed >= ts)
#else
#define EMPTIED(ts) (now.p[to].to > 0)
#endif

/* where the map says: the source as long as it is read, unless it is known to be empty already */
inline place() {
  if
  :: (now.phase == COPYING || now.phase == COMPARED) && now.p[now.home].to > 0 -> end_moves()
  :: else
  fi;
  to = now.home;
  if :: now.phase >= DRAINING -> to++ :: else fi
}

inline adopt() {
  i = 0;
  do
  :: i < N - 1 ->
    place();
    if
    :: i != to && (i != now.home + 1 || now.phase == SETTLED) && visible(i) &&
       !(visible(to) && now.p[to].cell >= now.p[i].cell) ->
      if
#ifdef NEWER
      :: !proven[i] ->
#if defined(PROBE) && PROBE == 4
        assert(i != back);
#endif
        if :: i != back -> kept = true :: else fi
#endif
      :: else ->
        put(to, now.p[i].cell, now.p[i].marker);
        if
        :: visible(to)
        :: else ->
          if
          :: EMPTIED(now.p[i].cell) ->
#if defined(PROBE) && PROBE == 1
            assert(false);
#endif
            renew(); put(now.home, now.p[i].cell, now.p[i].marker)
          :: else ->
#if defined(PROBE) && PROBE == 2
            assert(now.p[to].removed < now.p[i].cell);
#endif
#if defined(PROBE) && PROBE == 3
            assert(now.p[to].removed >= now.p[i].cell);
#endif
            if :: now.p[to].removed >= now.p[i].cell -> kept = true :: else fi
          fi
        fi
      fi
    :: else
    fi;
    i++
  :: else -> break
  od
}

#define LISTED (visible(now.home) && !now.p[now.home].marker)

init {
  do
  :: n < OPS && taken < 2 -> change()
  :: taken < 2 -> step()
  :: atomic { taken == 0 ->
      snapshot(first); taken = 1; last = value; before = n; gone = false; copied = false;
      if :: now.phase >= DRAINING -> drains = 1 :: else fi }
  :: atomic { taken == 1 -> snapshot(second); taken = 2 }
  :: taken == 2 -> break
  od;
  atomic {
    restore();
    confirm();
    prove();
    adopt();
    end_moves()
  }
#ifdef ROWS
#if defined(OLD) || defined(NEWER)
  assert(kept || (LISTED -> now.p[now.home].cell == value : value == 0))
#else
  assert(!kept && (LISTED -> now.p[now.home].cell == value : value == 0))
#endif
#else
  if
  :: LISTED -> assert(now.p[now.home].cell > before || now.p[now.home].cell == last)
  :: else -> assert(kept || last == 0 || gone)
  fi
#endif
}
