// The JSON API of the admin address: requests, errors with cause and remedy, and live events.

import { keyBytes } from './format.js';

// Problem is an error that a person can act on.
export class Problem extends Error {
  constructor(text, { status = 0, kind = '', leader = null } = {}) {
    super(text);
    this.status = status;
    this.kind = kind;
    this.leader = leader;
  }
}

// at is where a path of the API is: beside the console, wherever that is.
const at = (path) => new URL('..' + path, import.meta.url);

// signedOut is called when an answer says that nobody is signed in.
let signedOut = () => {};
export const onSignedOut = (f) => {
  signedOut = f;
};

async function ask(method, path, body, signal) {
  let response;
  try {
    response = await fetch(at(path), {
      method,
      signal,
      credentials: 'same-origin',
      cache: 'no-store',
      headers: body === undefined ? {} : { 'Content-Type': 'application/json' },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (e) {
    if (e.name === 'AbortError') throw e;
    throw new Problem(
      'The server does not answer. See whether the process still runs and its log says why; ' +
        'this page tries again by itself.',
    );
  }
  if (response.ok) return response.json();
  const text = await response.text();
  let said = { error: text.trim() };
  try {
    said = JSON.parse(text);
  } catch {
    /* plain text of the guard */
  }
  if (response.status === 401 && path !== '/v1/session') signedOut();
  throw new Problem(said.error || `The server answered ${response.status}.`, {
    status: response.status,
    kind: said.kind,
    leader: said.leader,
  });
}

// get requests path with parameters; a list gives a parameter several times, null leaves it out.
export function get(path, parameters, signal) {
  const query = [];
  for (const [name, value] of Object.entries(parameters ?? {})) {
    for (const v of [value].flat()) {
      if (v != null && v !== '') query.push(`${name}=${v instanceof Uint8Array ? encoded(v) : encodeURIComponent(v)}`);
    }
  }
  return ask('GET', path + (query.length ? '?' + query.join('&') : ''), undefined, signal);
}

export const post = (path, body, signal) => ask('POST', path, body ?? {}, signal);
export const remove = (path) => ask('DELETE', path);

// A key in a query is its bytes, each of them encoded.
const encoded = (b) => Array.from(b, (x) => '%' + x.toString(16).padStart(2, '0')).join('');
export const keyParameter = (key) => (key == null || key === '' ? null : keyBytes(key));

// Events are the server's. Browsers try again by themselves after a break, but not after a refusal.
export class Events extends EventTarget {
  constructor() {
    super();
    this.open = false;
    this.connect();
  }

  connect() {
    this.source = new EventSource(at('/v1/events'));
    const tell = (open) => {
      if (open === this.open) return;
      this.open = open;
      this.dispatchEvent(new Event('state'));
    };
    this.source.onopen = () => tell(true);
    this.source.onerror = () => {
      tell(false);
      if (this.source.readyState === EventSource.CLOSED) this.again = setTimeout(() => this.connect(), 5000);
    };
    for (const type of ['status', 'column', 'move']) {
      this.source.addEventListener(type, (e) => {
        this.dispatchEvent(new CustomEvent(type, { detail: JSON.parse(e.data) }));
      });
    }
  }

  close() {
    clearTimeout(this.again);
    this.source.close();
  }
}
