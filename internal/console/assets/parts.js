// What several pages show: dialogs, tables, choices, meters, states of jobs.

import { h } from './dom.js';
import { bytes, count, duration, many, percent, rate, rows, time } from './format.js';

// address of a page, behind the # of the console's own.
export function address(name, parameters) {
  const q = new URLSearchParams(parameters).toString();
  return `#/${name}${q ? '?' + q : ''}`;
}

// to is the address of a page.
export const to = (name, parameters = {}) =>
  address(name, Object.fromEntries(Object.entries(parameters).filter(([, v]) => v != null && v !== '')));

export function heading(text, ...tools) {
  return h(
    'div',
    { class: 'title' },
    h('h1', { tabindex: -1 }, text),
    tools.length ? h('div', { class: 'tools' }, tools) : null,
  );
}

export function pausedText(what, p) {
  return (
    `${what} paused since ${time(p.since)}` +
    (p.by ? ` by ${p.by}` : '') +
    (p.why ? ` (${p.why})` : '') +
    (p.until
      ? `, for another ${duration((new Date(p.until) - Date.now()) / 1000)}.`
      : ', until somebody resumes them.') +
    ' What has begun goes on to its end.'
  );
}

// dialog shows a question, and answers what its buttons return; null if it is closed.
export function dialog(title, parts, actions) {
  return new Promise((resolve) => {
    let answer = null;
    const box = h(
      'dialog',
      {
        'aria-labelledby': 'dialog-title',
        onclose: () => {
          box.remove();
          resolve(answer);
        },
      },
      h(
        'form',
        {
          method: 'dialog',
          onsubmit: (e) => {
            answer = actions[Number(e.submitter?.value ?? 0)].answer(box);
          },
        },
        h('h2', { id: 'dialog-title' }, title),
        parts,
        h(
          'div',
          { class: 'tools' },
          h('button', { type: 'button', onclick: () => box.close() }, 'Cancel'),
          actions.map((a, i) => h('button', { class: 'main', value: i }, a.text)),
        ),
      ),
    );
    document.body.append(box);
    box.showModal();
  });
}

// askPause asks why and for how long; the answer is the request.
export function askPause(name) {
  return dialog(
    name ? `Pause the moves of ${name}?` : 'Pause all moves?',
    [
      h(
        'p',
        {},
        'Nothing new is split, merged or moved. What has begun goes on to its end. Clients notice nothing; ' +
          'ranges that grow stay whole, and may pass their limits.',
      ),
      h(
        'p',
        {},
        h(
          'label',
          { class: 'field' },
          'For',
          h(
            'select',
            { name: 'for' },
            [
              [900, '15 minutes'],
              [3600, '1 hour'],
              [28800, '8 hours'],
              [0, 'as long as nobody resumes them'],
            ].map(([s, text]) => h('option', { value: s, selected: s === 3600 }, text)),
          ),
        ),
      ),
      h(
        'p',
        {},
        h(
          'label',
          { class: 'field' },
          'Because',
          h('input', { type: 'text', name: 'why', maxlength: 200, placeholder: 'for the others, optional' }),
        ),
      ),
    ],
    [
      {
        text: 'Pause',
        answer: (box) => ({
          ...(name ? { bucket: name } : {}),
          by: 'console',
          for_s: Number(box.querySelector('[name=for]').value),
          ...(box.querySelector('[name=why]').value ? { why: box.querySelector('[name=why]').value } : {}),
        }),
      },
    ],
  );
}

// table of rows by columns: {head, cell, number, key, sort}. On a phone each row becomes a list.
export function table(caption, columns, list, { key, sorted, onsort, chosen } = {}) {
  return h(
    'div',
    { class: 'scroll' },
    h(
      'table',
      { class: 'stack' },
      h('caption', { class: 'unseen' }, caption),
      h(
        'thead',
        {},
        h(
          'tr',
          {},
          columns.map((c) =>
            h(
              'th',
              {
                scope: 'col',
                class: c.number ? 'number' : null,
                'aria-sort': sorted?.by === c.sort && c.sort ? (sorted.down ? 'descending' : 'ascending') : null,
              },
              c.sort && onsort
                ? h(
                    'button',
                    { type: 'button', onclick: () => onsort(c.sort) },
                    c.head,
                    sorted?.by === c.sort ? (sorted.down ? ' ↓' : ' ↑') : '',
                  )
                : c.head,
            ),
          ),
        ),
      ),
      h(
        'tbody',
        {},
        list.map((row) =>
          h(
            'tr',
            { key: key?.(row), class: chosen?.(row) ? 'chosen' : null },
            columns.map((c) =>
              h('td', { class: c.number ? 'number' : null, 'data-head': c.head }, h('div', {}, c.cell(row))),
            ),
          ),
        ),
      ),
    ),
  );
}

// choice is a group of radio buttons.
export function choice(legend, name, options, value, onchange) {
  return h(
    'fieldset',
    { class: 'choice' },
    h('legend', {}, legend),
    options.map(([v, text]) =>
      h(
        'label',
        {},
        h('input', {
          type: 'radio',
          name,
          value: v,
          checked: String(v) === String(value),
          onchange: () => onchange(v),
        }),
        text,
      ),
    ),
  );
}

export function picker(label, options, value, onchange) {
  return h(
    'label',
    { class: 'field' },
    label,
    h(
      'select',
      { onchange: (e) => onchange(e.target.value) },
      options.map(([v, text]) => h('option', { value: v, selected: String(v) === String(value) }, text)),
    ),
  );
}

export const figure = (name, value, note) =>
  h('div', {}, h('dt', {}, name), h('dd', {}, value, note ? h('small', {}, note) : null));
export const fact = (name, value) => (value == null || value === '' ? [] : [h('dt', {}, name), h('dd', {}, value)]);

export const empty = (...text) =>
  h(
    'div',
    { class: 'empty' },
    text.map((t) => (t instanceof Node ? t : h('p', {}, t))),
  );

// keyOf is a key that an address has as JSON; null if it has none.
export function keyOf(text) {
  try {
    return text ? JSON.parse(text) : null;
  } catch {
    return null; // an address that somebody has typed
  }
}

// key shows a key or a part of one.
export const key = (text) => h('span', { class: 'key' }, text);
export const range = (r, { from, to }) => [key(from(r.start)), ' … ', key(to(r.end))];

// rowsAgainst shows rows beside their limit, as a number and as a bar.
export function rowsAgainst(n, limits, short = false) {
  const most = limits?.max_rows;
  if (!most) return rows(n);
  return [
    h('span', { class: 'nowrap' }, rows(n)),
    h(
      'span',
      { class: n > most ? 'meter limit over' : 'meter limit', 'aria-hidden': 'true' },
      h('i', { vars: { '--part': `${Math.min(100, (100 * n) / most)}%` } }),
    ),
    short ? null : h('span', { class: 'small quiet nowrap' }, `${percent(n / most)} of ${rows(most)}`),
  ];
}

export const phases = {
  settled: 'settled',
  marking: 'marking: deletes leave markers',
  copying: 'copying rows',
  verifying: 'comparing the copy',
  draining: 'waiting for older leases',
  sweeping: 'removing markers',
};

// begun is when this page saw each job for the first time, in ms, and how many rows were done.
const begun = new Map();

// left is about how many seconds a job goes on, at its rate since this page saw it first; 0: unknown.
function left(job, done, all) {
  if (job.state !== 'running') {
    begun.delete(job.id);
    return 0;
  }
  const now = Date.now();
  if (!begun.has(job.id)) begun.set(job.id, { at: now, done });
  const first = begun.get(job.id);
  return done > first.done ? ((all - done) / (done - first.done)) * ((now - first.at) / 1000) : 0;
}

// progress of a job: rows that were copied, compared and searched, each of all.
export function progress(job) {
  const all = 3 * job.rows;
  const done = Math.min(job.rows, job.copied) + Math.min(job.rows, job.verified) + Math.min(job.rows, job.searched);
  const part = job.state === 'done' ? 1 : all > 0 ? done / all : 0;
  const more = left(job, done, all);
  return h(
    'div',
    { class: 'job' },
    h(
      'span',
      {
        class: 'meter',
        role: 'progressbar',
        'aria-label': 'Progress',
        'aria-valuemin': 0,
        'aria-valuemax': 100,
        'aria-valuenow': Math.round(100 * part),
      },
      h('i', { vars: { '--part': `${100 * part}%` } }),
    ),
    h(
      'span',
      { class: 'small quiet' },
      [
        job.state === 'running' ? (phases[job.phase] ?? job.phase) : job.state,
        job.rows ? `${count(job.copied)} of ${rows(job.rows)} copied` : 'no rows to copy',
        more > 0 ? `about ${duration(more)} left` : null,
      ]
        .filter(Boolean)
        .join(' · '),
    ),
  );
}

export const figuresOf = (b) => [
  figure(
    'Rows',
    b.known === false ? `≥ ${count(b.rows)}` : count(b.rows),
    b.unknown_ranges ? `${many(b.unknown_ranges, 'range')} not counted yet` : `largest range: ${rows(b.largest_rows)}`,
  ),
  figure('Size', bytes(b.bytes), 'keys and values'),
  figure('Ranges', count(b.ranges), b.moving_ranges ? `${count(b.moving_ranges)} of them move` : 'one partition each'),
  figure('Writes', rate(b.writes_per_s, 'writes'), 'over the last minute'),
  figure('Reads', rate(b.reads_per_s, 'reads'), 'over the last minute'),
  figure('Growth', rate(b.growth_rows_per_s, 'rows'), 'over the last hour'),
  figure('Tombstones', count(b.dead), 'deleted rows not yet gone'),
];
