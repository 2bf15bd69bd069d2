// All buckets: how large, how busy, and who looks after them.

import { get } from './api.js';
import { h } from './dom.js';
import { bytes, count, many, rate } from './format.js';
import { empty, heading, table, to } from './parts.js';

export const title = 'Buckets';

const each = 50;

const columns = [
  { head: 'Bucket', sort: 'bucket', cell: (b) => h('a', { href: to('bucket', { b: b.bucket }) }, b.bucket) },
  { head: 'Rows', sort: 'rows', number: true, cell: (b) => (b.known ? count(b.rows) : `≥ ${count(b.rows)}`) },
  { head: 'Size', sort: 'bytes', number: true, cell: (b) => bytes(b.bytes) },
  { head: 'Ranges', sort: 'ranges', number: true, cell: (b) => count(b.ranges) },
  { head: 'Writes', sort: 'writes_per_s', number: true, cell: (b) => rate(b.writes_per_s, 'writes') },
  { head: 'Reads', sort: 'reads_per_s', number: true, cell: (b) => rate(b.reads_per_s, 'reads') },
  { head: 'Growth', sort: 'growth_rows_per_s', number: true, cell: (b) => rate(b.growth_rows_per_s, 'rows') },
  { head: 'Tombstones', sort: 'dead', number: true, cell: (b) => `${count(b.dead)} rows` },
  { head: 'State', cell: (b) => stateOf(b) },
];

// stateOf a bucket: what an operator would want to look at.
export function stateOf(b) {
  const tags = [
    b.state !== 'open' ? h('span', { class: 'tag warn' }, b.state) : null,
    b.paused ? h('span', { class: 'tag warn' }, 'paused') : null,
    b.moving_ranges ? h('span', { class: 'tag move' }, `${many(b.moving_ranges, 'range')} move`) : null,
    b.over_max ? h('span', { class: 'tag bad' }, `${count(b.over_max)} too large`) : null,
    b.waiting ? h('span', { class: 'tag warn' }, `${many(b.waiting, 'range')} wait`) : null,
    b.unknown_ranges ? h('span', { class: 'tag' }, `${count(b.unknown_ranges)} not counted`) : null,
  ].filter(Boolean);
  return tags.length ? tags.map((t) => [t, ' ']) : h('span', { class: 'quiet' }, 'within limits');
}

export async function show(page) {
  let answer = null;
  let sorted = { by: 'bucket', down: false };
  const draw = () => {
    const p = page.parameters;
    const list = [...(answer?.buckets ?? [])].sort(
      (a, b) => (sorted.down ? -1 : 1) * (a[sorted.by] < b[sorted.by] ? -1 : a[sorted.by] > b[sorted.by] ? 1 : 0),
    );
    page.draw(
      heading(
        'Buckets',
        h(
          'form',
          {
            class: 'tools',
            role: 'search',
            onsubmit: (e) => {
              e.preventDefault();
              page.set({ p: e.target.elements.p.value, after: null });
              page.run(load);
            },
          },
          h(
            'label',
            { class: 'field' },
            'Names that begin with',
            h('input', { type: 'search', name: 'p', value: p.get('p') ?? '', size: 14 }),
          ),
          h('button', {}, 'Find'),
        ),
      ),
      answer && h('p', { class: 'quiet' }, keeper(answer)),
      answer &&
        (list.length
          ? h(
              'section',
              { 'aria-label': 'Buckets' },
              table('Buckets', columns, list, {
                key: (b) => b.id,
                sorted,
                onsort: (by) => {
                  sorted = { by, down: sorted.by === by ? !sorted.down : by !== 'bucket' };
                  draw();
                },
              }),
              answer.next || p.get('after')
                ? h(
                    'div',
                    { class: 'pages' },
                    p.get('after')
                      ? h(
                          'button',
                          {
                            onclick: () => {
                              page.set({ after: null });
                              page.run(load);
                            },
                          },
                          'First buckets',
                        )
                      : null,
                    answer.next
                      ? h(
                          'button',
                          {
                            onclick: () => {
                              page.set({ after: answer.next });
                              page.run(load);
                            },
                          },
                          `Next ${each} buckets`,
                        )
                      : null,
                  )
                : null,
            )
          : h(
              'section',
              {},
              p.get('p')
                ? empty(`No bucket’s name begins with “${p.get('p')}”.`)
                : empty(
                    'There is no bucket yet.',
                    h(
                      'p',
                      {},
                      'Create one with any S3 client, or with ',
                      h('code', {}, 'bin/listd bucket create photos'),
                      '. Put keys into it with ',
                      h('code', {}, 'bin/listd load photos keys.txt'),
                      '.',
                    ),
                  ),
            )),
    );
  };
  const load = async () => {
    const p = page.parameters;
    answer = await get('/v1/buckets', { limit: each, after: p.get('after'), prefix: p.get('p') }, page.signal);
    draw();
  };
  page.every(5, load);
}

// keeper says who looks after sizes, and within which limits.
export function keeper(answer) {
  const { keeper: k, limits: l } = answer;
  if (k?.unattended) return `Nobody looks after sizes: ${k.unattended}`;
  const within = l
    ? `: at most ${count(l.max_rows)} rows${l.max_bytes ? ` and ${bytes(l.max_bytes)}` : ''} in a range, ` +
      `at least ${count(l.min_rows)} rows`
    : '';
  return `Sizes are looked after by ${k?.name || 'this process'}${within}. Writes and reads are means of the last minute, growth of the last hour.`;
}
