// What moved, when, why, and what it cost.

import { get } from './api.js';
import { h } from './dom.js';
import { count, duration, from, keyText, many, rows, time, to as end } from './format.js';
import { empty, heading, key, progress, table, to } from './parts.js';

export const title = 'Moves';

const each = 50;

const states = {
  met: ['', 'done'],
  begun: ['move', 'goes on'],
  waiting: ['', 'waits'],
  refused: ['warn', 'refused'],
  dropped: ['warn', 'dropped'],
  left: ['warn', 'left to the next leader'],
};

export async function show(page) {
  let answer = null;
  const draw = () => {
    if (!answer) return;
    const p = page.parameters;
    const all = page.status?.pauses?.find((x) => !x.bucket);
    const jobs = (page.status?.jobs ?? []).filter(
      (j) => (j.state === 'running' || j.state === 'waiting') && (!page.bucket || j.bucket === page.bucket),
    );
    page.draw(
      heading(
        page.bucket ? `Moves · ${page.bucket}` : 'Moves',
        page.bucket ? h('a', { class: 'button', href: to('moves') }, 'Of all buckets') : null,
        all
          ? h('button', { onclick: () => page.resume('') }, 'Resume all moves')
          : h('button', { onclick: () => page.pause('') }, 'Pause all moves'),
      ),
      h(
        'section',
        { 'aria-labelledby': 'now-h' },
        h('h2', { id: 'now-h' }, 'Now'),
        jobs.length
          ? table(
              'Moves now',
              [
                { head: 'Bucket', cell: (j) => bucketLink(j.bucket) },
                { head: 'What', cell: (j) => j.what },
                { head: 'Ranges', number: true, cell: (j) => many(j.goals?.length ?? 0, 'range') },
                { head: 'Progress', cell: progress },
                { head: 'Since', number: true, cell: (j) => time(j.asked) },
              ],
              jobs,
              { key: (j) => j.id },
            )
          : h('p', { class: 'quiet' }, all ? 'All moves are paused.' : 'Nothing moves.'),
        page.status?.max_rate
          ? h(
              'p',
              { class: 'quiet small' },
              `Moves copy at most ${count(page.status.rate)} rows/s now, ` +
                `${count(page.status.max_rate)} rows/s when clients leave room.`,
            )
          : null,
      ),
      h(
        'section',
        { 'aria-labelledby': 'then-h' },
        h('h2', { id: 'then-h' }, 'History'),
        answer.moves.length
          ? [
              table(
                'History of moves',
                [
                  { head: 'When', cell: (e) => h('span', { class: 'nowrap' }, time(e.ended ?? e.began ?? e.asked)) },
                  { head: 'Bucket', cell: (e) => bucketLink(e.bucket) },
                  {
                    head: 'What',
                    cell: (e) => [
                      h('strong', {}, e.kind),
                      e.by === 'request' ? h('div', { class: 'small quiet' }, 'by request') : null,
                    ],
                  },
                  {
                    head: 'Keys',
                    cell: (e) => [
                      h('div', {}, key(from(e.start)), ' … ', key(end(e.end))),
                      e.cuts?.length
                        ? h(
                            'div',
                            { class: 'small quiet' },
                            'at ',
                            key(e.cuts.slice(0, 3).map(keyText).join(', ')),
                            e.cuts.length > 3 ? ` and ${many(e.cuts.length - 3, 'more cut')}` : '',
                          )
                        : null,
                    ],
                  },
                  {
                    head: 'Why',
                    cell: (e) => [e.why, e.error ? h('div', {}, h('strong', {}, 'Error: '), e.error) : null],
                  },
                  {
                    head: 'Copied',
                    number: true,
                    cell: (e) => [
                      rows(e.copied ?? 0),
                      e.rows ? h('div', { class: 'small quiet' }, `of ${rows(e.rows)}`) : null,
                    ],
                  },
                  {
                    head: 'Took',
                    number: true,
                    cell: (e) => (e.ended && e.began ? duration((new Date(e.ended) - new Date(e.began)) / 1000) : ''),
                  },
                  {
                    head: 'State',
                    cell: (e) =>
                      h('span', { class: `tag ${states[e.state]?.[0] ?? ''}` }, states[e.state]?.[1] ?? e.state),
                  },
                ],
                answer.moves,
                { key: (e) => e.id },
              ),
              answer.next || p.get('before')
                ? h(
                    'div',
                    { class: 'pages' },
                    p.get('before')
                      ? h(
                          'button',
                          {
                            onclick: () => {
                              page.set({ before: null });
                              page.run(load);
                            },
                          },
                          'Newest',
                        )
                      : null,
                    answer.next
                      ? h(
                          'button',
                          {
                            onclick: () => {
                              page.set({ before: answer.next });
                              page.run(load);
                            },
                          },
                          `${each} older moves`,
                        )
                      : null,
                  )
                : null,
            ]
          : empty(
              'Nothing has moved yet.',
              h(
                'p',
                {},
                'Ranges are split when they grow too large or too busy, and merged when they stay small. ',
                'Make a ',
                h('a', { href: to('plan', { b: page.bucket }) }, 'plan'),
                ' to see what could be better now.',
              ),
            ),
      ),
    );
  };
  const load = async () => {
    answer = await get(
      '/v1/moves',
      { bucket: page.bucket, before: page.parameters.get('before'), limit: each },
      page.signal,
    );
    draw();
  };
  page.every(15, load);
  page.on('known', draw);
  let soon = null;
  page.on('move', () => {
    soon ??= setTimeout(() => {
      soon = null;
      page.run(load);
    }, 500);
  });
  page.signal.addEventListener('abort', () => clearTimeout(soon));
}

const bucketLink = (name) =>
  name ? h('a', { href: to('bucket', { b: name }) }, name) : h('span', { class: 'quiet' }, 'deleted');
