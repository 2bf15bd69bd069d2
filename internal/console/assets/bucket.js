// A bucket: its map, what moves, what waits and why, and where its rows are.

import { get, keyParameter } from './api.js';
import { Bars } from './bars.js';
import { h, keep } from './dom.js';
import { bytes, count, duration, from, keyText, many, rate, rows, span, time, to as end } from './format.js';
import { empty, figuresOf, heading, key, keyOf, pausedText, progress, rowsAgainst, table, to } from './parts.js';

export const title = (page) => page.bucket || 'Bucket';

const each = 25;
const some = 10; // rows of a table, until all are asked for

export async function show(page) {
  if (!page.bucket) {
    location.hash = to('buckets');
    return;
  }
  const view = new View(page);
  page.every(5, () => view.load());
  page.on('known', () => view.draw());
  page.on('move', (e) => e.bucket === page.bucket && page.run(() => view.load()));
}

class View {
  constructor(page) {
    this.page = page;
    this.chosen = null;
    this.opened = new Set();
    this.bars = new Bars(
      page,
      (bar) => {
        this.chosen = bar;
        this.draw();
      },
      (bar) => this.list(bar.start),
    );
  }

  // at is the key from which on ranges are listed.
  get at() {
    return keyOf(this.page.parameters.get('at')) ?? '';
  }

  async load() {
    const { page } = this;
    const bucket = page.bucket;
    const [all, shape, notable, ranges, usage] = await Promise.all([
      get('/v1/buckets', { limit: 1, prefix: bucket }, page.signal),
      get('/v1/shape', { bucket, bars: 300 }, page.signal),
      get('/v1/ranges', { bucket, only: 'notable', limit: 100 }, page.signal),
      get('/v1/ranges', { bucket, from: keyParameter(this.at), limit: each }, page.signal),
      get('/v1/usage', { bucket, prefix: page.parameters.get('p'), delimiter: '/' }, page.signal),
    ]);
    Object.assign(this, {
      one: all.buckets.find((b) => b.bucket === bucket),
      keeper: all.keeper,
      shape,
      notable,
      ranges,
      usage,
    });
    this.draw();
  }

  list(key) {
    this.page.set({ at: key === '' ? null : JSON.stringify(key) });
    this.page.run(async () => {
      await this.load();
      document.getElementById('ranges')?.scrollIntoView({ block: 'start' });
    });
  }

  draw() {
    const { page, shape } = this;
    if (!shape) return;
    const pause = page.status?.pauses?.find((p) => p.bucket === page.bucket);
    page.draw(
      heading(
        page.bucket,
        h('a', { class: 'button', href: to('keys', { b: page.bucket }) }, 'Key visualizer'),
        h('a', { class: 'button', href: to('plan', { b: page.bucket }) }, 'Plan'),
        h('a', { class: 'button', href: to('moves', { b: page.bucket }) }, 'Moves'),
        pause
          ? h('button', { onclick: () => page.resume(page.bucket) }, 'Resume moves')
          : h('button', { onclick: () => page.pause(page.bucket) }, 'Pause moves'),
      ),
      pause ? h('p', { class: 'notice', role: 'status' }, pausedText(`Moves of ${page.bucket} are`, pause)) : null,
      h(
        'section',
        { 'aria-labelledby': 'state-h' },
        h('h2', { id: 'state-h', class: 'unseen' }, 'Now'),
        h('dl', { class: 'figures' }, this.one ? figuresOf(this.one) : null),
        h('p', { class: 'quiet small', key: 'who' }, this.who()),
      ),
      this.map(),
      this.moving(),
      this.waiting(),
      this.prefixes(),
      this.all(),
    );
  }

  // first are the first of a list, until all are asked for; others asks.
  first(name, list) {
    return this.opened.has(name) || list.length <= some ? list : list.slice(0, some - 2);
  }

  others(name, list) {
    if (this.first(name, list) === list) return null;
    const onclick = () => {
      this.opened.add(name);
      this.draw();
    };
    return h('p', {}, h('button', { onclick }, `Show all ${count(list.length)}`));
  }

  who() {
    const k = this.keeper;
    return k?.unattended
      ? `Nobody looks after its sizes: ${k.unattended}`
      : `Looked after by ${k?.name || 'this process'}.` +
          (this.one?.at ? ` Figures of ${time(this.one.at)}; map of epoch ${count(this.shape.epoch)}.` : '');
  }

  map() {
    const { shape } = this;
    const { limits } = shape;
    const together = shape.bars.some((b) => b.ranges > 1);
    const items = shape.bars.map((b) => ({
      ...b,
      value: b.largest_rows,
      over: b.over_max > 0,
      moving: b.moving_ranges > 0,
    }));
    const part = h(
      'section',
      { 'aria-labelledby': 'map-h' },
      h('h2', { id: 'map-h' }, 'Map'),
      h(
        'p',
        { class: 'quiet' },
        together
          ? `${many(shape.ranges, 'range')}, put together to ${count(shape.bars.length)} bars in the order of their ` +
              'keys; the height is the rows of the largest one.'
          : 'One bar for each range, in the order of their keys; the height is its rows.',
      ),
      keep(this.bars.frame),
      h(
        'p',
        { class: 'small', key: 'chosen', 'aria-live': 'polite' },
        this.chosen
          ? this.barText(this.chosen)
          : h(
              'span',
              { class: 'quiet' },
              'Point at a bar, or walk with the arrow keys; a click or Enter lists its ranges.',
            ),
      ),
      h(
        'div',
        { class: 'legend small quiet' },
        h(
          'ul',
          {},
          [
            ['', 'within the limits'],
            ['over', `over ${rows(limits.max_rows)}`],
            ['move', 'moves at present'],
          ].map(([c, text]) => h('li', {}, h('span', { class: `swatch ${c}` }), text)),
          h(
            'li',
            {},
            `Lines: at most ${rows(limits.max_rows)}` + (limits.min_rows ? `, at least ${rows(limits.min_rows)}` : ''),
          ),
        ),
      ),
    );
    queueMicrotask(() =>
      this.bars.show(items, [{ value: limits.max_rows }, ...(limits.min_rows ? [{ value: limits.min_rows }] : [])]),
    );
    return part;
  }

  barText(b) {
    return [
      key(from(b.start)),
      ' … ',
      key(end(b.end)),
      ` · ${b.ranges > 1 ? `${many(b.ranges, 'range')}, ` : ''}${rows(b.rows)}, ${bytes(b.bytes)}` +
        ` · ${rate(b.writes_per_s, 'writes')} · ${rate(b.reads_per_s, 'reads')}` +
        (b.moving_ranges ? ` · ${count(b.moving_ranges)} move` : '') +
        (b.waiting ? ` · ${count(b.waiting)} wait` : '') +
        (b.unknown_ranges ? ` · ${count(b.unknown_ranges)} not counted yet` : ''),
    ];
  }

  moving() {
    const jobs = (this.page.status?.jobs ?? []).filter(
      (j) => j.bucket === this.page.bucket && (j.state === 'running' || j.state === 'waiting'),
    );
    const batches = (this.page.status?.buckets ?? []).find((b) => b.bucket === this.page.bucket);
    return h(
      'section',
      { 'aria-labelledby': 'moving-h', key: 'moving' },
      h('h2', { id: 'moving-h' }, 'Moves now'),
      jobs.length
        ? table(
            'Moves now',
            [
              { head: 'What', cell: (j) => j.what },
              { head: 'Ranges', number: true, cell: (j) => count(j.goals?.length ?? 0) },
              { head: 'Keys', cell: (j) => (j.goals?.length ? key(span(j.goals[0])) : '') },
              { head: 'Progress', cell: progress },
              { head: 'Since', number: true, cell: (j) => time(j.asked) },
            ],
            jobs,
            { key: (j) => j.id },
          )
        : h('p', { class: 'quiet' }, 'Nothing moves.'),
      batches?.failures?.length
        ? h(
            'p',
            { class: 'problem' },
            `The last try failed at ${time(batches.failures[0].at)}: ${batches.failures[0].error} ` +
              'It is tried again by itself.',
          )
        : null,
    );
  }

  waiting() {
    const list = (this.notable?.ranges ?? []).filter((r) => r.phase === 'settled' && !r.job);
    return h(
      'section',
      { 'aria-labelledby': 'why-h', key: 'why' },
      h('h2', { id: 'why-h' }, 'What waits, and why'),
      list.length
        ? [
            h(
              'p',
              { class: 'quiet' },
              'Ranges outside the limits, or with something due, about which nothing is done at this moment.',
            ),
            table(
              'What waits, and why',
              [
                { head: 'Keys', cell: (r) => [key(from(r.start)), ' … ', key(end(r.end))] },
                { head: 'Rows', number: true, cell: (r) => rowsAgainst(r.rows, this.notable.limits) },
                {
                  head: 'Decision',
                  cell: (r) =>
                    h(
                      'span',
                      { class: r.verdict === 'none' ? 'tag warn' : 'tag move' },
                      r.verdict === 'none' ? 'waits' : `${r.verdict} is due`,
                    ),
                },
                {
                  head: 'Why',
                  cell: (r) => [
                    h('strong', {}, r.why),
                    r.text ? h('div', {}, r.text) : null,
                    r.until
                      ? h(
                          'div',
                          { class: 'quiet' },
                          `Until ${time(r.until)}, in ${duration((new Date(r.until) - Date.now()) / 1000)}.`,
                        )
                      : null,
                  ],
                },
              ],
              this.first('waits', list),
              { key: (r) => r.partition },
            ),
            this.others('waits', list),
            this.notable.next ? h('p', { class: 'quiet small' }, 'No more than the first 100 are listed.') : null,
          ]
        : h('p', { class: 'quiet' }, 'Nothing waits: all ranges are within their limits, or are being moved.'),
    );
  }

  prefixes() {
    const { usage, page } = this;
    if (!usage) return null;
    const p = usage.prefix;
    const open = (prefix) => {
      page.set({ p: prefix === '' ? null : prefix }, true);
      page.run(() => this.load());
    };
    const text = keyText(p);
    const above = text.replace(/[^/]*\/$/, '');
    const all = Math.max(1, usage.rows);
    const list = [...usage.prefixes].sort((a, b) => b.rows - a.rows);
    return h(
      'section',
      { 'aria-labelledby': 'usage-h', key: 'usage' },
      h('h2', { id: 'usage-h' }, 'Usage by prefix'),
      h('p', { class: 'quiet' }, [
        p ? ['Below ', key(text), '. '] : '',
        `About ${rows(Math.round(usage.rows))}, ${bytes(usage.bytes)}.`,
        ' Estimates from samples of keys.',
        p ? [' ', h('button', { class: 'plain', onclick: () => open(above) }, 'One level up')] : '',
      ]),
      list.length
        ? table(
            'Usage by prefix',
            [
              {
                head: 'Prefix',
                cell: (u) =>
                  u.more && typeof u.prefix === 'string'
                    ? h('button', { class: 'plain', onclick: () => open(u.prefix) }, key(keyText(u.prefix)))
                    : key(keyText(u.prefix)),
              },
              {
                head: 'Rows',
                number: true,
                cell: (u) => [
                  count(u.rows),
                  h(
                    'span',
                    { class: 'meter limit', 'aria-hidden': 'true' },
                    h('i', { vars: { '--part': `${(100 * u.rows) / all}%` } }),
                  ),
                ],
              },
              { head: 'Size', number: true, cell: (u) => bytes(u.bytes) },
              { head: 'Writes', number: true, cell: (u) => rate(u.writes_per_s, 'writes') },
              { head: 'Reads', number: true, cell: (u) => rate(u.reads_per_s, 'reads') },
            ],
            this.first('prefixes', list),
            { key: (u) => keyText(u.prefix) },
          )
        : empty(
            usage.rows > 0
              ? 'Keys here have no “/”: there are no prefixes to tell apart.'
              : 'There are no keys here yet.',
          ),
      this.others('prefixes', list),
      usage.others
        ? h(
            'p',
            { class: 'quiet small' },
            `And ${many(usage.others.prefixes, 'smaller prefix', 'smaller prefixes')} with ` +
              `${rows(usage.others.rows)}, ${bytes(usage.others.bytes)}.`,
          )
        : null,
    );
  }

  all() {
    const { ranges } = this;
    return h(
      'section',
      { 'aria-labelledby': 'ranges', key: 'ranges' },
      h(
        'div',
        { class: 'title' },
        h('h2', { id: 'ranges' }, 'Ranges'),
        h(
          'form',
          {
            class: 'tools',
            onsubmit: (e) => {
              e.preventDefault();
              this.list(e.target.elements.at.value);
            },
          },
          h(
            'label',
            { class: 'field' },
            'From the one that holds',
            h('input', {
              type: 'search',
              name: 'at',
              value: keyText(this.at),
              size: 16,
              class: 'key',
              spellcheck: 'false',
            }),
          ),
          h('button', {}, 'Show'),
        ),
      ),
      table(
        'Ranges',
        [
          { head: 'Keys', cell: (r) => [key(from(r.start)), ' … ', key(end(r.end))] },
          { head: 'Partition', cell: (r) => h('span', { class: 'key', title: r.partition }, r.partition.slice(0, 8)) },
          {
            head: 'Rows',
            number: true,
            cell: (r) => (r.known ? rowsAgainst(r.rows, ranges.limits, true) : `≥ ${rows(r.rows)}`),
          },
          { head: 'Size', number: true, cell: (r) => bytes(r.bytes) },
          { head: 'Writes', number: true, cell: (r) => rate(r.puts_per_s + r.deletes_per_s, 'writes') },
          { head: 'Reads', number: true, cell: (r) => rate(r.reads_per_s, 'reads') },
          { head: 'Tombstones', number: true, cell: (r) => `${count(r.dead)} rows` },
          {
            head: 'State',
            cell: (r) =>
              r.phase !== 'settled'
                ? h('span', { class: 'tag move' }, r.phase)
                : r.why === 'within limits'
                  ? 'within limits'
                  : h('span', { title: r.text }, r.verdict === 'none' ? r.why : `${r.verdict} is due: ${r.why}`),
          },
        ],
        ranges.ranges,
        { key: (r) => r.partition },
      ),
      ranges.next != null || this.at !== ''
        ? h(
            'div',
            { class: 'pages' },
            this.at !== '' ? h('button', { onclick: () => this.list('') }, 'First ranges') : null,
            ranges.next != null ? h('button', { onclick: () => this.list(ranges.next) }, `Next ${each} ranges`) : null,
          )
        : null,
    );
  }
}
