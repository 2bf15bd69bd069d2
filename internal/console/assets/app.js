// The frame of the console: sign-in, pages by the address behind #, live events, and what all pages show.

import { Events, get, onSignedOut, post, Problem, remove } from './api.js';
import { announce, h, patch } from './dom.js';
import { address, askPause, heading, pausedText, to } from './parts.js';
import * as bucket from './bucket.js';
import * as buckets from './buckets.js';
import * as cluster from './cluster.js';
import * as keys from './keys.js';
import * as moves from './moves.js';
import * as plan from './plan.js';
import * as signin from './signin.js';

const pages = { keys, buckets, bucket, plan, moves, cluster };
const inNav = [
  ['keys', 'Key visualizer'],
  ['buckets', 'Buckets'],
  ['plan', 'Plan'],
  ['moves', 'Moves'],
  ['cluster', 'Cluster'],
];

const main = document.getElementById('page');
const problemPlace = document.getElementById('problem');
const partsPlace = document.getElementById('parts');
const app = { events: null, status: null, session: null };
let shown = null;

// Page is what a page works with: its parameters, its element, and events until another page is shown.
class Page {
  constructor(name, parameters) {
    this.name = name;
    this.parameters = parameters;
    this.end = new AbortController();
    this.signal = this.end.signal;
  }

  get status() {
    return app.status;
  }
  get bucket() {
    return this.parameters.get('b') ?? '';
  }

  // draw shows the page's parts.
  draw(...parts) {
    if (!this.signal.aborted) patch(partsPlace, parts);
  }

  // run does something for the page. What goes wrong is shown, until the same goes well: what the user did until the
  // next thing that they do, what the page does by itself until its next turn.
  async run(f, by = 'user') {
    try {
      await f();
      if (this.failed === by) this.tell(null);
    } catch (e) {
      if (e.name === 'AbortError' || this.signal.aborted) return;
      if (!(e instanceof Problem)) console.error(e);
      this.failed = by;
      this.tell(e);
    }
  }

  tell(problem) {
    if (!this.signal.aborted) patch(problemPlace, problem && problemPart(problem));
  }

  on(type, f) {
    app.events.addEventListener(type, (e) => f(e.detail), { signal: this.signal });
  }

  // every calls f now and every s seconds while the page can be seen.
  every(s, f) {
    const turn = () => {
      if (!document.hidden) this.run(f, 'turn');
    };
    const timer = setInterval(turn, s * 1000);
    document.addEventListener('visibilitychange', turn, { signal: this.signal });
    this.signal.addEventListener('abort', () => clearInterval(timer));
    turn();
  }

  async pause(name) {
    const asked = await askPause(name);
    if (asked) await this.command(() => post('/v1/pause', asked), 'Moves are paused.');
  }

  resume(name) {
    return this.command(() => post('/v1/resume', name ? { bucket: name } : {}), 'Moves go on.');
  }

  // command does something that the status then shows.
  command(f, said) {
    return this.run(async () => {
      await f();
      announce(said);
      take(await get('/v1/status'));
    });
  }

  // set changes parameters in the address; the page goes on.
  set(changes, remember = false) {
    for (const [k, v] of Object.entries(changes)) {
      if (v == null || v === '') this.parameters.delete(k);
      else this.parameters.set(k, v);
    }
    const to = address(this.name, this.parameters);
    if (remember) history.pushState(null, '', to);
    else history.replaceState(null, '', to);
    nav();
  }
}

function problemPart(e) {
  return h(
    'div',
    { class: 'problem', role: 'alert', key: 'problem' },
    h('p', {}, e.message),
    e.leader?.admin
      ? h(
          'p',
          {},
          'Open the console of the process that leads: ',
          h('a', { href: e.leader.admin + '/console/' }, e.leader.name || e.leader.admin),
        )
      : null,
  );
}

function titleOf(page) {
  const text = pages[page.name].title;
  return typeof text === 'function' ? text(page) : text;
}

function nav() {
  const b = shown?.bucket;
  patch(
    document.getElementById('nav'),
    app.session?.signed_in
      ? h(
          'ul',
          {},
          inNav.map(([name, text]) =>
            h(
              'li',
              {},
              h(
                'a',
                {
                  href: to(name, name === 'keys' || name === 'plan' ? { b } : {}),
                  'aria-current':
                    name === shown?.name || (name === 'buckets' && shown?.name === 'bucket') ? 'page' : null,
                },
                text,
              ),
            ),
          ),
        )
      : null,
  );
}

function state() {
  const open = app.events?.open;
  patch(
    document.getElementById('state'),
    app.session?.signed_in
      ? [
          h(
            'span',
            { role: 'status' },
            h('span', { class: open ? 'dot' : 'dot off', 'aria-hidden': 'true' }),
            open ? 'live' : 'not connected, trying again',
          ),
          app.session.required ? h('button', { class: 'plain', onclick: signOut }, 'Sign out') : null,
        ]
      : null,
  );
}

// banner says what holds everywhere: pauses of all moves, and what nobody looks after.
function banner() {
  const s = app.status;
  const all = s?.pauses?.find((p) => !p.bucket);
  patch(
    document.getElementById('banner'),
    app.session?.signed_in && s
      ? [
          all
            ? h(
                'div',
                { class: 'notice', role: 'status', key: 'paused' },
                h('p', {}, pausedText('All moves are', all)),
                h('button', { onclick: () => shown.resume('') }, 'Resume'),
              )
            : null,
          s.unattended
            ? h(
                'div',
                { class: 'notice', key: 'unattended' },
                h('p', {}, `Nothing is split or merged by itself: ${s.unattended}`),
              )
            : null,
          s.other_limits ? h('div', { class: 'notice', key: 'limits' }, h('p', {}, s.other_limits)) : null,
        ]
      : null,
  );
}

function take(status) {
  if (!app.events) return; // signed out meanwhile
  app.status = status;
  banner();
  app.events.dispatchEvent(new CustomEvent('known', { detail: status }));
}

// show shows the page that the address names.
function show() {
  const [, name, query] = location.hash.match(/^#\/(\w+)(?:\?(.*))?$/) ?? [];
  if (location.hash === '#page') return; // the link to skip the header
  shown?.end.abort();
  announce('');
  patch(problemPlace);
  partsPlace.replaceChildren();
  if (!app.session?.signed_in) {
    shown = null;
    document.title = 'Sign in · evenkeel';
    signin.show(partsPlace, begin);
  } else {
    shown = new Page(Object.hasOwn(pages, name ?? '') ? name : 'buckets', new URLSearchParams(query));
    const title = titleOf(shown);
    document.title = `${title} · evenkeel`;
    const here = shown;
    here.draw(heading(title));
    here.run(() => pages[here.name].show(here));
  }
  nav();
  state();
  banner();
}

// begin starts with a session: who needs none is signed in.
async function begin(session) {
  app.session = session;
  app.events?.close();
  app.events = null;
  if (session.signed_in) {
    app.events = new Events();
    app.events.addEventListener('state', state);
    app.events.addEventListener('status', (e) => take(e.detail));
  }
  show();
}

async function signOut() {
  await remove('/v1/session').catch(() => {}); // the cookie ends by itself
  begin({ required: true, signed_in: false });
}

onSignedOut(() => {
  if (app.session?.signed_in) begin({ required: true, signed_in: false });
});

window.addEventListener('hashchange', () => {
  show();
  if (location.hash !== '#page') main.querySelector('h1')?.focus({ preventScroll: true });
  window.scrollTo(0, 0);
});

async function start() {
  try {
    await begin(await get('/v1/session'));
  } catch (e) {
    patch(problemPlace, problemPart(e));
    patch(partsPlace, heading('evenkeel'), h('p', {}, h('button', { onclick: start }, 'Try again')));
  }
}

start();
