// A plan: where the cuts of a bucket would lie best, what it costs to get there, and doing it.

import { get, post } from './api.js';
import { strip } from './bars.js';
import { announce, h, keep } from './dom.js';
import { brief, count, duration, from, many, percent, rows, to as end } from './format.js';
import { dialog, empty, figure, heading, key, picker, progress, table, to } from './parts.js';
import { bucketNames } from './names.js';

export const title = (page) => (page.bucket ? `Plan · ${page.bucket}` : 'Plan');

const shown = 100; // moves and partitions that a table lists

export async function show(page) {
  const names = await bucketNames(page);
  if (names.length === 0) {
    page.draw(
      heading('Plan'),
      h(
        'section',
        {},
        empty(
          'There is no bucket yet, so there is nothing to plan.',
          h('p', {}, 'Create one: ', h('code', {}, 'bin/listd bucket create photos'), '.'),
        ),
      ),
    );
    return;
  }
  if (!names.includes(page.bucket)) page.set({ b: names[0] });
  new View(page, names).draw();
}

// shortIDs shortens the ids of partitions: their first digits tell them apart.
const shortIDs = (text) => text.replace(/\b([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f-]{22}\b/g, '$1…');

class View {
  constructor(page, names) {
    Object.assign(this, { page, names, objective: 'rows', planner: 'auto', answer: null, busy: false, job: null });
    this.before = h('canvas', { 'aria-hidden': 'true' });
    this.after = h('canvas', { 'aria-hidden': 'true' });
    const again = () => this.paint();
    const size = new ResizeObserver(again);
    size.observe(this.before);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', again, { signal: page.signal });
    page.signal.addEventListener('abort', () => {
      size.disconnect();
      clearTimeout(this.timer);
    });
  }

  async make() {
    this.busy = true;
    this.job = null;
    this.draw();
    await this.page.run(async () => {
      this.answer = await post(
        '/v1/plan',
        { bucket: this.page.bucket, objective: this.objective, planner: this.planner },
        this.page.signal,
      );
      const n = this.answer.plan.moves.length;
      announce(n ? `The plan has ${many(n, 'move')}.` : 'The plan has nothing to move.');
    });
    this.busy = false;
    this.draw();
  }

  async apply() {
    const { bucket, plan } = this.answer;
    const body = { bucket, partitions: plan.partitions, moves: plan.moves };
    await this.page.run(async () => {
      const dry = await post('/v1/apply', { ...body, dry_run: true }, this.page.signal);
      const copied = dry.moves.reduce((sum, m) => sum + (m.rows_copied ?? 0), 0);
      const perS = this.page.status?.rate;
      const yes = await dialog(
        `Apply the plan to ${bucket}?`,
        [
          h(
            'p',
            {},
            `${many(dry.moves.length, 'move')} copy ${rows(copied)}` +
              (perS > 0 ? `, about ${duration(copied / perS)} at ${brief(perS)} rows/s` : '') +
              '. Clients read and write meanwhile. What has begun can’t be taken back, but another plan can follow.',
          ),
          dry.notes?.length
            ? h(
                'ul',
                {},
                dry.notes.map((n) => h('li', {}, n)),
              )
            : null,
        ],
        [{ text: 'Apply', answer: () => true }],
      );
      if (!yes) return;
      const done = await post('/v1/apply', body, this.page.signal);
      announce('The plan is being carried out.');
      this.follow(done.job);
    });
  }

  follow(job) {
    this.job = job;
    this.draw();
    if (!job || job.state === 'done' || job.state === 'failed') {
      if (job) announce(job.state === 'done' ? 'The plan is carried out.' : `The plan failed: ${job.error}`);
      return;
    }
    this.timer = setTimeout(
      () => this.page.run(async () => this.follow(await get(`/v1/jobs/${job.id}`, {}, this.page.signal))),
      1000,
    );
  }

  draw() {
    const { page, answer } = this;
    page.draw(
      heading(
        'Plan',
        picker(
          'Bucket',
          this.names.map((n) => [n, n]),
          page.bucket,
          (b) => {
            location.hash = to('plan', { b });
          },
        ),
        h('a', { class: 'button', href: to('bucket', { b: page.bucket }) }, 'The bucket'),
      ),
      h(
        'section',
        { 'aria-label': 'Make a plan' },
        h(
          'p',
          {},
          'A plan says where the cuts would lie best, and how few rows must move for that. ' +
            'Nothing moves until you apply it.',
        ),
        h(
          'div',
          { class: 'tools below' },
          picker(
            'Aim',
            [
              ['rows', 'sizes, by the fewest rows'],
              ['full', 'the lowest cost: also load, growth, fewer ranges'],
            ],
            this.objective,
            (v) => {
              this.objective = v;
            },
          ),
          picker(
            'Planner',
            [
              ['auto', 'best of all in 2 s'],
              ['exact', 'exact'],
              ['greedy', 'greedy: fastest'],
              ['genetic', 'genetic'],
            ],
            this.planner,
            (v) => {
              this.planner = v;
            },
          ),
          h(
            'button',
            { class: 'main', disabled: this.busy, onclick: () => this.make() },
            this.busy ? 'Planning …' : answer ? 'Plan again' : 'Make a plan',
          ),
        ),
      ),
      this.job
        ? h(
            'section',
            { 'aria-labelledby': 'job-h', key: 'job' },
            h(
              'h2',
              { id: 'job-h' },
              { done: 'The plan is carried out', failed: 'The plan failed' }[this.job.state] ??
                'The plan is being carried out',
            ),
            progress(this.job),
            this.job.error ? h('p', { class: 'problem' }, this.job.error) : null,
            h('p', {}, h('a', { href: to('moves', { b: page.bucket }) }, 'See its moves')),
          )
        : null,
      ...(answer ? this.parts() : []),
    );
    this.paint();
  }

  parts() {
    const { plan, was, will, limits, histogram, before } = this.answer;
    const { rows_moved_lower_bound: bound, gap } = plan.optimality;
    const n = plan.moves.length;
    const from2 = (a, b) => (a === b ? count(a) : `${count(a)} → ${count(b)}`);
    const widest = Math.max(1, ...(histogram ?? []).flatMap((b) => [b.before, b.after]));
    const bar = (n) => [
      many(n, 'range'),
      h(
        'span',
        { class: 'meter limit', 'aria-hidden': 'true' },
        h('i', { vars: { '--part': `${(100 * n) / widest}%` } }),
      ),
    ];
    const all = before.reduce((sum, p) => sum + p.rows, 0);
    return [
      h(
        'section',
        { 'aria-labelledby': 'plan-h', key: 'plan' },
        h(
          'div',
          { class: 'title' },
          h('h2', { id: 'plan-h' }, n ? 'Before and after' : 'Nothing to move'),
          n ? h('button', { class: 'main', disabled: !!this.job, onclick: () => this.apply() }, 'Apply …') : null,
        ),
        h(
          'dl',
          { class: 'figures' },
          figure(
            'Rows to copy',
            count(plan.rows_moved),
            all ? `${percent(plan.rows_moved / all)} of ${rows(all)}` : 'rows',
          ),
          figure('Fewest possible', count(bound), 'rows that any such plan copies'),
          figure('Gap', percent(gap), gap === 0 ? 'no plan copies fewer' : 'more than the fewest possible'),
          figure('Ranges', from2(was.partitions, will.partitions), 'now, and by the plan'),
          figure('Too large', from2(was.over_max, will.over_max), `ranges over ${rows(limits.max_rows)}`),
          figure('Too small', from2(was.under_min, will.under_min), `ranges under ${rows(limits.min_rows)}`),
        ),
        plan.notes?.length
          ? h(
              'ul',
              { class: 'notice' },
              plan.notes.map((t) => h('li', {}, t)),
            )
          : null,
        n
          ? h(
              'figure',
              { class: 'strips' },
              h('figcaption', { class: 'small quiet' }, 'Now: the width and the number of a range are its rows'),
              keep(this.before),
              h('p', { class: 'small quiet' }, 'By the plan'),
              keep(this.after),
              h(
                'div',
                { class: 'legend small quiet' },
                h(
                  'ul',
                  {},
                  [
                    ['', 'stays as it is'],
                    ['new', 'new partition'],
                    ['over', `over ${rows(limits.max_rows)}`],
                  ].map(([c, t]) => h('li', {}, h('span', { class: `swatch ${c}` }), t)),
                ),
              ),
            )
          : h('p', {}, 'The cuts lie as well as they can, within the limits.'),
      ),
      histogram?.length
        ? h(
            'section',
            { 'aria-labelledby': 'sizes-h', key: 'sizes' },
            h('h2', { id: 'sizes-h' }, 'Ranges by size'),
            table(
              'Ranges by size',
              [
                { head: 'Size', cell: (b) => (b.label === 'empty' ? 'empty' : `${b.label} rows`) },
                { head: 'Now', number: true, cell: (b) => bar(b.before) },
                { head: 'By the plan', number: true, cell: (b) => bar(b.after) },
              ],
              histogram,
              { key: (b) => b.label },
            ),
          )
        : null,
      n
        ? h(
            'section',
            { 'aria-labelledby': 'moves-h', key: 'moves' },
            h('h2', { id: 'moves-h' }, 'Moves of the plan'),
            table(
              'Moves of the plan',
              [
                { head: 'Keys', cell: (m) => [key(from(m.start)), ' … ', key(end(m.end))] },
                { head: 'Rows', number: true, cell: (m) => rows(m.rows) },
                { head: 'Why', cell: (m) => shortIDs(m.reason) },
              ],
              plan.moves.slice(0, shown),
            ),
            n > shown ? h('p', { class: 'quiet small' }, `These are the first ${shown} of ${count(n)}.`) : null,
          )
        : null,
    ];
  }

  paint() {
    if (!this.answer || !this.before.isConnected) return;
    const { before, plan, limits } = this.answer;
    const old = new Set(before.map((p) => p.id));
    strip(this.before, before, limits);
    strip(
      this.after,
      plan.partitions.map((p) => ({ ...p, fresh: !old.has(p.id) })),
      limits,
    );
  }
}
