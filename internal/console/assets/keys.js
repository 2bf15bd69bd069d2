// The key visualizer: time across, keys upwards, colour by what happens there.

import { get, keyParameter } from './api.js';
import { announce, h, keep, patch } from './dom.js';
import { brief, bytes, count, duration, from, keyText, many, rate, rows, span, time, to as end } from './format.js';
import { choice, empty, fact, heading, key, keyOf, picker, rowsAgainst, to } from './parts.js';
import { glyphOf, glyphs, Heat, Picture, ramp } from './picture.js';
import { bucketNames } from './names.js';

export const title = (page) => (page.bucket ? `Key visualizer · ${page.bucket}` : 'Key visualizer');

const metrics = [
  ['writes', 'Writes'],
  ['reads', 'Reads'],
  ['rows', 'Rows'],
  ['bytes', 'Bytes'],
];
const windows = [
  [300, '5 min'],
  [900, '15 min'],
  [3600, '1 h'],
  [21600, '6 h'],
  [86400, '24 h'],
];

// valueOf a metric as text.
export function valueOf(of, v) {
  if (v < 0) return 'not known';
  return { writes: () => rate(v, 'writes'), reads: () => rate(v, 'reads'), rows: () => rows(v), bytes: () => bytes(v) }[
    of
  ]();
}

const tick = (of, v) => (of === 'bytes' ? bytes(v) : brief(v));
const units = {
  writes: 'writes per second, of all keys of a cell, in the mean over its time',
  rows: 'rows, at the end of a cell’s time',
  reads: 'reads per second, of all keys of a cell, in the mean over its time',
  bytes: 'bytes, at the end of a cell’s time',
};

// zoomOf is what the address says: a time, or the last seconds; a prefix, or keys from one to another.
function zoomOf(page) {
  const p = page.parameters;
  return {
    of: metrics.some(([m]) => m === p.get('of')) ? p.get('of') : 'writes',
    last: Number(p.get('last')) || 3600,
    from: p.get('from'),
    until: p.get('until'),
    prefix: p.get('prefix') ?? '',
    start: keyOf(p.get('start')),
    end: keyOf(p.get('end')),
  };
}

export async function show(page) {
  const names = await bucketNames(page);
  if (names.length === 0) {
    page.draw(
      heading('Key visualizer'),
      h(
        'section',
        {},
        empty(
          'There is no bucket yet, so there are no keys to look at.',
          h(
            'p',
            {},
            'Create one and put keys into it: ',
            h('code', {}, 'bin/listd load photos keys.txt --create'),
            '.',
          ),
        ),
      ),
    );
    return;
  }
  if (!names.includes(page.bucket)) page.set({ b: names[0] });
  const view = new View(page, names);
  view.draw();
  page.every(10, () => view.load());
  page.on('column', (c) => c.buckets.includes(page.bucket) && page.run(() => view.load()));
  let soon = null;
  page.on('move', (e) => {
    if (e.bucket !== page.bucket || soon) return;
    soon = setTimeout(() => {
      soon = null;
      page.run(() => view.load());
    }, 1000);
  });
  page.signal.addEventListener('abort', () => clearTimeout(soon));
}

class View {
  constructor(page, names) {
    this.page = page;
    this.names = names;
    this.heat = null;
    this.cell = null;
    this.pinned = false;
    this.about = new Map(); // what is known of ranges, by their first key
    const below = h('canvas', { 'aria-hidden': 'true' });
    this.above = h('canvas', {
      class: 'over',
      tabindex: 0,
      role: 'application',
      'aria-roledescription': 'key visualizer',
      'aria-label': 'Key visualizer',
      'aria-describedby': 'how',
      onpointermove: (e) => this.moved(e),
      onpointerleave: () => this.left(),
      onpointerdown: (e) => this.down(e),
      onpointerup: (e) => this.up(e),
      onkeydown: (e) => this.typed(e),
      onfocus: () => this.focused(),
      onblur: () => this.left(),
    });
    this.frame = h('div', { class: 'picture' }, below, this.above);
    this.ramp = h('canvas', { 'aria-hidden': 'true' });
    this.picture = new Picture(below, this.above);
    const again = () => this.paint();
    const size = new ResizeObserver(again);
    size.observe(this.frame);
    const dark = matchMedia('(prefers-color-scheme: dark)');
    dark.addEventListener('change', again, { signal: page.signal });
    page.signal.addEventListener('abort', () => size.disconnect());
  }

  async load() {
    const z = zoomOf(this.page);
    const now = Date.now() / 1000;
    const [begin, until] = z.from
      ? [Math.floor(Number(z.from)), Math.ceil(Number(z.until))]
      : [Math.floor(now) - z.last, Math.floor(now)];
    // The finest grain is 10 s for a while, then a minute.
    const grain = until - begin <= 1200 ? 10 : 60;
    const width = Math.max(1, Math.min(288, Math.ceil((until - begin) / grain) + 1));
    const answer = await get(
      '/v1/heat',
      {
        bucket: this.page.bucket,
        from: begin,
        to: until,
        width,
        height: 240,
        start: keyParameter(z.start),
        end: keyParameter(z.end),
        prefix: z.prefix ? new TextEncoder().encode(z.prefix) : null,
      },
      this.page.signal,
    );
    const before = this.heat;
    this.heat = new Heat(answer);
    // The cursor stays at its time and keys.
    if (this.cell && before) {
      const x = this.heat.column(this.cell.begin * 1000 + 1);
      const y = Math.floor(this.heat.place(this.cell.start));
      this.cell = x >= 0 && y < this.heat.rows ? this.heat.cell(x, y) : null;
    }
    this.draw();
    if (this.cell) this.ask(this.cell);
  }

  get nothing() {
    return (
      !this.heat ||
      this.heat.columns === 0 ||
      this.heat.rows === 0 ||
      Object.values(this.heat.metrics).every((m) => m.cells.every((c) => c < 0))
    );
  }

  zoomed() {
    const z = zoomOf(this.page);
    return z.from || z.prefix || z.start || z.end;
  }

  set(changes) {
    this.page.set(changes, true);
    this.draw();
    this.page.run(() => this.load());
  }

  draw() {
    const { page, heat } = this;
    const z = zoomOf(page);
    const zoomed = this.zoomed();
    page.draw(
      heading(
        'Key visualizer',
        picker(
          'Bucket',
          this.names.map((n) => [n, n]),
          page.bucket,
          (b) => {
            location.hash = to('keys', { b, of: z.of });
          },
        ),
        h('a', { class: 'button', href: to('bucket', { b: page.bucket }) }, 'The bucket'),
      ),
      h(
        'section',
        { 'aria-label': 'Key visualizer' },
        h(
          'div',
          { class: 'tools', role: 'group', 'aria-label': 'What is shown' },
          choice('Colour', 'of', metrics, z.of, (of) => {
            page.set({ of });
            this.draw();
          }),
          choice('Time', 'last', windows, z.from ? '' : z.last, (last) => this.set({ last, from: null, until: null })),
          h(
            'form',
            {
              class: 'tools',
              onsubmit: (e) => {
                e.preventDefault();
                this.set({ prefix: e.target.elements.prefix.value, start: null, end: null });
              },
            },
            h(
              'label',
              { class: 'field' },
              'Keys that begin with',
              h('input', {
                type: 'search',
                name: 'prefix',
                class: 'key',
                value: z.prefix,
                size: 14,
                spellcheck: 'false',
                autocapitalize: 'off',
              }),
            ),
            h('button', {}, 'Zoom'),
          ),
          zoomed ? h('button', { class: 'plain', onclick: () => this.out() }, 'Zoom out') : null,
        ),
        h('p', { class: 'small quiet', key: 'window' }, this.windowText()),
        heat?.gap
          ? h(
              'p',
              { class: 'problem small', key: 'gap' },
              `Not known from ${time(heat.gap.from)} to ${time(heat.gap.to)}: ${heat.gap.why}`,
            )
          : null,
        heat?.omitted_buckets
          ? h(
              'p',
              { class: 'small quiet', key: 'omitted' },
              `More buckets take requests than a sample has room for: the last one left out ` +
                `${many(heat.omitted_buckets, 'bucket')}, which come first in the next one.`,
            )
          : null,
        heat && this.nothing
          ? this.empty()
          : h(
              'div',
              { class: 'visual', key: 'visual' },
              h('div', {}, keep(this.frame), this.legend()),
              h('div', { class: 'detail', 'aria-live': 'polite', id: 'detail' }, this.detail()),
            ),
        h(
          'p',
          { class: 'unseen', id: 'how' },
          'Arrow keys choose a cell, with Shift in steps of ten. Enter holds it. Plus zooms into it, ' +
            'minus and Escape zoom out. Below is a table of the same.',
        ),
      ),
      heat && !this.nothing ? this.table() : null,
    );
    this.paint();
  }

  windowText() {
    const z = zoomOf(this.page);
    if (!this.heat) return 'Loading …';
    const t = this.heat.times;
    const part = z.start || z.end ? `keys ${span(z)}` : 'all keys';
    const where = z.prefix ? `keys that begin with “${z.prefix}”` : part;
    const spans = this.heat.spans.reduce((a, b) => a + b, 0);
    const parts = [
      where,
      `${time(t[0] * 1000, false)} to ${time(t[t.length - 1] * 1000, false)}`,
      `${many(this.heat.rows, 'row')} of keys` +
        (spans > this.heat.rows ? `, of ${count(spans)} that were told apart` : ''),
    ];
    if (this.heat.step_s) parts.push(`a cell is ${duration(this.heat.step_s)}`);
    return parts.join(' · ');
  }

  empty() {
    const [text, then] = this.zoomed()
      ? ['Nothing is known of these keys in this time.', 'Zoom out, or choose a later time.']
      : [
          'Nothing is known of this bucket yet.',
          'Figures come once a minute from the process that looks after sizes. Put or read some ' +
            'keys, and wait for a minute. If nothing comes, the page Cluster says who should look after sizes.',
        ];
    return empty(text, then);
  }

  legend() {
    const z = zoomOf(this.page);
    const scale = this.scale;
    return h(
      'div',
      { class: 'legend', key: 'legend' },
      h(
        'div',
        { class: 'scale' },
        h('div', { class: 'small quiet' }, units[z.of]),
        keep(this.ramp),
        h(
          'div',
          { class: 'ticks' },
          (scale?.ticks() ?? []).map((v, i) =>
            h(
              'span',
              { key: i, vars: { '--at': `${100 * (v === 0 ? 0 : scale.share(v))}%` } },
              i === 1 ? '' : tick(z.of, v),
            ),
          ),
        ),
      ),
      h(
        'ul',
        { 'aria-label': 'Signs' },
        Object.values(glyphs).map((g) =>
          h(
            'li',
            {},
            h('svg', { viewBox: '-7 -7 14 14', 'aria-hidden': 'true' }, h('path', { d: g.path, class: 'glyph' })),
            g.name,
          ),
        ),
        h(
          'li',
          {},
          h(
            'svg',
            { viewBox: '0 0 14 14', 'aria-hidden': 'true' },
            h('path', { d: 'M-2 9L9 -2M2 14L14 2M9 16L16 9', class: 'glyph' }),
          ),
          'nothing known',
        ),
      ),
    );
  }

  paint() {
    if (!this.heat || this.nothing || !this.frame.isConnected || this.frame.clientWidth === 0) return;
    const z = zoomOf(this.page);
    const before = this.scale?.most;
    this.scale = this.picture.draw(this.heat, z.of);
    ramp(this.ramp);
    this.picture.cursor(this.cell);
    const most = this.heat.metrics[z.of].max;
    this.above.setAttribute(
      'aria-label',
      `${units[z.of]}; ${this.windowText()}; the most in a cell is ${valueOf(z.of, most)}`,
    );
    // The legend has the scale of what was drawn.
    if (this.scale.most !== before || this.legendOf !== z.of) {
      this.legendOf = z.of;
      this.draw();
    }
  }

  // choose moves the cursor.
  choose(cell) {
    if (cell?.x === this.cell?.x && cell?.y === this.cell?.y) return;
    this.cell = cell;
    this.picture.cursor(cell);
    this.show();
    clearTimeout(this.asking);
    if (cell && !this.about.has(keyText(cell.start))) this.asking = setTimeout(() => this.ask(cell), 150);
  }

  // ask requests what is known at present of the ranges of a cell.
  async ask(cell) {
    const name = keyText(cell.start);
    if (this.about.size > 1000) this.about.clear();
    try {
      const answer = await get(
        '/v1/ranges',
        { bucket: this.page.bucket, from: keyParameter(cell.start), limit: 1 },
        this.page.signal,
      );
      this.about.set(name, answer);
    } catch (e) {
      if (e.name === 'AbortError') return;
      this.about.set(name, { problem: e.message });
    }
    this.show();
  }

  show() {
    const place = document.getElementById('detail');
    if (place) patch(place, this.detail());
  }

  detail() {
    const { cell, heat } = this;
    if (!cell || !heat) {
      return [
        h('h3', {}, 'Point at a cell'),
        h(
          'p',
          { class: 'quiet' },
          'It says which keys and which partition that is, what ' +
            'happened there, and what was decided about it. Drag over a part to zoom into it.',
        ),
        h(
          'p',
          { class: 'quiet' },
          'By keyboard: ',
          h('kbd', {}, '←'),
          ' ',
          h('kbd', {}, '↑'),
          ' ',
          h('kbd', {}, '→'),
          ' ',
          h('kbd', {}, '↓'),
          ' choose, ',
          h('kbd', {}, '+'),
          ' ',
          h('kbd', {}, '−'),
          ' zoom, ',
          h('kbd', {}, 'Enter'),
          ' holds.',
        ),
      ];
    }
    const fine = cell.until - cell.begin < 60;
    const here = this.about.get(keyText(cell.start));
    const r = here?.ranges?.[0];
    const events = this.picture.heat === heat ? this.picture.near(cell) : [];
    return [
      h('h3', { key: 'keys' }, key(from(cell.start)), ' … ', key(end(cell.end))),
      h(
        'p',
        { class: 'quiet', key: 'when' },
        `${time(cell.begin * 1000, fine)} to ${time(cell.until * 1000, fine)}` +
          (this.pinned ? ' · held, Enter or a click lets go' : ''),
      ),
      h(
        'dl',
        { class: 'facts', key: 'values' },
        metrics.map(([m, name]) => fact(name, heat.metrics[m] ? valueOf(m, heat.at(m, cell.x, cell.y)) : null)),
      ),
      events.length
        ? h(
            'div',
            { key: 'events' },
            h('h3', {}, 'Happened here'),
            h(
              'ul',
              {},
              events.slice(0, 4).map(eventPart),
              events.length > 4 ? h('li', { class: 'quiet' }, `and ${count(events.length - 4)} more: see Moves`) : null,
            ),
          )
        : null,
      h(
        'div',
        { key: 'now' },
        h('h3', {}, 'Now, the range at the first of these keys'),
        here?.problem
          ? h('p', {}, here.problem)
          : !r
            ? h('p', { class: 'quiet' }, 'Loading …')
            : rangePart(r, here.limits),
      ),
      h(
        'p',
        { class: 'tools', key: 'do' },
        h('button', { onclick: () => this.into(cell.start, cell.end) }, 'Zoom into these keys'),
        h('a', { href: to('bucket', { b: this.page.bucket, at: JSON.stringify(cell.start) }) }, 'In the bucket'),
      ),
    ];
  }

  into(start, until, begin, last) {
    this.cell = null;
    this.pinned = false;
    this.set({
      prefix: null,
      start: start === '' || start == null ? null : JSON.stringify(start),
      end: until === '' || until == null ? null : JSON.stringify(until),
      ...(begin ? { from: begin, until: Math.ceil(last) } : {}),
    });
    announce('Zoomed in.');
  }

  out() {
    this.cell = null;
    this.pinned = false;
    this.set({ prefix: null, start: null, end: null, from: null, until: null });
    announce('All keys, up to now.');
  }

  // Pointers.
  point(e) {
    const box = this.above.getBoundingClientRect();
    return [e.clientX - box.left, e.clientY - box.top];
  }

  moved(e) {
    const [x, y] = this.point(e);
    if (this.drag) {
      const [x0, y0] = this.drag;
      if (Math.abs(x - x0) + Math.abs(y - y0) > 8) this.dragged = true;
      if (this.dragged)
        this.picture.cursor(null, [Math.min(x, x0), Math.min(y, y0), Math.abs(x - x0), Math.abs(y - y0)]);
      return;
    }
    if (!this.pinned) this.choose(this.picture.find(x, y));
  }

  left() {
    if (!this.pinned && !this.drag && document.activeElement !== this.above) this.choose(null);
  }

  down(e) {
    this.drag = this.point(e);
    this.dragged = false;
    if (e.pointerType === 'mouse') this.above.setPointerCapture(e.pointerId);
  }

  up(e) {
    const [x, y] = this.point(e);
    const [x0, y0] = this.drag ?? [x, y];
    this.drag = null;
    const cell = this.picture.find(x, y);
    if (!this.dragged) {
      this.pinned = !this.pinned && cell != null;
      this.cell = null;
      this.choose(cell);
      return;
    }
    const { box } = this.picture;
    const inside = (px, py) =>
      this.picture.find(
        Math.min(Math.max(px, box.left), box.left + box.width - 1),
        Math.min(Math.max(py, box.top), box.top + box.height - 1),
      );
    const first = inside(Math.min(x, x0), Math.max(y, y0));
    const last = inside(Math.max(x, x0), Math.min(y, y0));
    this.pinned = false;
    this.cell = null;
    if (first && last) this.into(first.start, last.end, first.begin, last.until);
  }

  // The keyboard.
  focused() {
    if (!this.cell && this.heat && !this.nothing) this.choose(this.heat.cell(this.heat.newest, 0));
  }

  typed(e) {
    if (!this.heat || this.nothing || e.ctrlKey || e.metaKey || e.altKey) return;
    const step = e.shiftKey ? 10 : 1;
    const c = this.cell ?? this.heat.cell(this.heat.newest, 0);
    const go = (x, y) =>
      this.choose(
        this.heat.cell(Math.min(this.heat.columns - 1, Math.max(0, x)), Math.min(this.heat.rows - 1, Math.max(0, y))),
      );
    const does = {
      ArrowLeft: () => go(c.x - step, c.y),
      ArrowRight: () => go(c.x + step, c.y),
      ArrowUp: () => go(c.x, c.y + step),
      ArrowDown: () => go(c.x, c.y - step),
      Home: () => go(0, c.y),
      End: () => go(this.heat.newest, c.y),
      PageUp: () => go(c.x, this.heat.rows - 1),
      PageDown: () => go(c.x, 0),
      Enter: () => {
        this.pinned = !this.pinned;
        this.show();
      },
      '+': () =>
        this.into(
          c.start,
          c.end,
          Math.max(this.heat.times[0], c.begin - 900),
          Math.min(c.until + 900, Date.now() / 1000),
        ),
      '-': () => this.out(),
      Escape: () => this.out(),
    }[e.key];
    if (!does) return;
    e.preventDefault();
    does();
  }

  // table is the picture for those who do not see it: the rows with the most, and when.
  table() {
    const { heat } = this;
    const { of } = zoomOf(this.page);
    const list = [];
    for (let y = 0; y < heat.rows; y++) {
      let most = -1;
      let when = 0;
      let sum = 0;
      let known = 0;
      for (let x = 0; x < heat.columns; x++) {
        const v = heat.at(of, x, y);
        if (v < 0) continue;
        sum += v;
        known++;
        if (v > most) [most, when] = [v, x];
      }
      list.push({ y, most, when, mean: known ? sum / known : -1, last: heat.at(of, heat.newest, y) });
    }
    list.sort((a, b) => b.most - a.most);
    return h(
      'section',
      { key: 'table' },
      h(
        'details',
        {},
        h('summary', {}, 'The same as a table: the 50 rows with the most'),
        h(
          'div',
          { class: 'scroll' },
          h(
            'table',
            {},
            h('caption', { class: 'unseen' }, units[of]),
            h(
              'thead',
              {},
              h(
                'tr',
                {},
                ['Keys from', 'up to'].map((t) => h('th', { scope: 'col' }, t)),
                ['Most', 'when', 'Mean', 'Last'].map((t) => h('th', { scope: 'col', class: 'number' }, t)),
              ),
            ),
            h(
              'tbody',
              {},
              list.slice(0, 50).map(({ y, most, when, mean, last }) =>
                h(
                  'tr',
                  {},
                  h('td', {}, key(from(heat.keys[y]))),
                  h('td', {}, key(end(heat.keys[y + 1]))),
                  [valueOf(of, most), time(heat.times[when] * 1000, false), valueOf(of, mean), valueOf(of, last)].map(
                    (t) => h('td', { class: 'number' }, t),
                  ),
                ),
              ),
            ),
          ),
        ),
      ),
    );
  }
}

function eventPart(e) {
  const glyph = glyphs[glyphOf(e.kind)];
  return h(
    'li',
    {},
    h(
      'svg',
      { viewBox: '-7 -7 14 14', width: 12, height: 12, 'aria-hidden': 'true' },
      h('path', { d: glyph.path, class: 'glyph' }),
    ),
    ` ${e.kind} ${time(e.ended ?? e.began ?? e.asked)}`,
    e.cuts?.length
      ? [' at ', key(keyText(e.cuts[0])), e.cuts.length > 1 ? ` and ${many(e.cuts.length - 1, 'more cut')}` : '']
      : null,
    ` · ${rows(e.copied ?? 0)} copied`,
    e.why ? h('div', { class: 'quiet' }, e.why) : null,
  );
}

// rangePart is what is known of a range now.
export function rangePart(r, limits) {
  return h(
    'dl',
    { class: 'facts' },
    fact('Range', [key(from(r.start)), ' … ', key(end(r.end))]),
    fact('Partition', key(r.partition.slice(0, 8) + '…')),
    fact('Rows', r.known ? rowsAgainst(r.rows, limits) : `at least ${rows(r.rows)}, not counted yet`),
    fact('Size', bytes(r.bytes)),
    fact('Writes', rate(r.puts_per_s + r.deletes_per_s, 'writes')),
    fact('Reads', rate(r.reads_per_s, 'reads')),
    fact(
      'Decision',
      r.phase && r.phase !== 'settled'
        ? `moves: ${r.phase}`
        : r.verdict === 'none'
          ? 'nothing is done'
          : `${r.verdict} is due`,
    ),
    fact('Reason', r.text || r.why),
    fact('Acts', r.until ? `from ${time(r.until)} on` : null),
  );
}
