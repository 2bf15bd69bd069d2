// Numbers, times and keys as text. Every number has its unit.

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat('en', { maximumSignificantDigits: 3, useGrouping: true });

export const count = (n) => whole.format(n);

// many is a number with its unit, in the singular where there is one.
export const many = (n, one, more = one + 's') => `${whole.format(n)} ${n === 1 ? one : more}`;

export const rows = (n) => many(n, 'row');

// brief is a number in three figures, for places where all of them do not fit.
export function brief(n) {
  for (const [size, suffix] of [
    [1e9, 'G'],
    [1e6, 'M'],
    [1e4, 'k'],
  ]) {
    if (Math.abs(n) >= size) return short.format(n / (suffix === 'k' ? 1e3 : size)) + ' ' + suffix;
  }
  return short.format(n);
}

// briefOf is a number in three figures with its unit: "12 k rows".
export const briefOf = (n, unit) => `${brief(n)} ${unit}`.replace(/ ([kMG]) (B|rows|writes|reads)/, ' $1 $2');

export function bytes(n) {
  for (const [size, unit] of [
    [2 ** 40, 'TiB'],
    [2 ** 30, 'GiB'],
    [2 ** 20, 'MiB'],
    [2 ** 10, 'KiB'],
  ]) {
    if (Math.abs(n) >= size) return `${short.format(n / size)} ${unit}`;
  }
  return `${whole.format(n)} B`;
}

// rate is a number per second.
export function rate(x, unit) {
  if (x > 0 && x < 0.01) return `< 0.01 ${unit}/s`;
  return `${x < 100 ? short.format(Math.round(x * 100) / 100) : brief(Math.round(x))} ${unit}/s`;
}

// duration of seconds, in its two largest units.
export function duration(s) {
  if (s < 0) s = 0;
  if (s < 1) return s === 0 ? '0 s' : s < 1e-5 ? '< 0.01 ms' : `${short.format(Math.round(s * 1e5) / 100)} ms`;
  if (s < 10) return `${Math.round(s * 10) / 10} s`;
  s = Math.round(s);
  const units = [
    [86400, 'd'],
    [3600, 'h'],
    [60, 'min'],
    [1, 's'],
  ];
  const at = units.findIndex(([size]) => s >= size);
  const [size, unit] = units[at];
  const next = units[at + 1];
  const rest = next ? Math.floor((s % size) / next[0]) : 0;
  return `${Math.floor(s / size)} ${unit}${rest ? ` ${rest} ${next[1]}` : ''}`;
}

const clock = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit' });
const clockS = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const day = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short' });

// time of the day in the browser's zone, with the day if it is another one.
export function time(at, seconds = true) {
  const d = at instanceof Date ? at : new Date(at);
  const text = (seconds ? clockS : clock).format(d);
  return d.toDateString() === new Date().toDateString() ? text : `${day.format(d)} ${text}`;
}

export const percent = (x) => `${short.format(Math.round(x * 1000) / 10)} %`;

const utf8 = new TextEncoder();
const printable = /[\p{L}\p{M}\p{N}\p{P}\p{S} ]/u;

// keyBytes of a key in JSON: a string, or {"b64": …} if it is not UTF-8.
export function keyBytes(key) {
  if (key == null) return new Uint8Array();
  if (typeof key === 'string') return utf8.encode(key);
  return Uint8Array.from(atob(key.b64), (c) => c.charCodeAt(0));
}

// keyText is the text form of a key: each byte that is not part of a printable character is \xNN.
export function keyText(key) {
  const hex = (b) => '\\x' + b.toString(16).padStart(2, '0');
  const text = (s) =>
    [...s]
      .map((c) => {
        if (c === '\\') return '\\\\';
        return printable.test(c) ? c : [...utf8.encode(c)].map(hex).join('');
      })
      .join('');
  if (key == null) return '';
  if (typeof key === 'string') return text(key);
  const b = keyBytes(key);
  let out = '';
  for (let i = 0; i < b.length;) {
    const n = b[i] < 0x80 ? 1 : b[i] >= 0xf0 ? 4 : b[i] >= 0xe0 ? 3 : 2;
    try {
      const c = new TextDecoder('utf-8', { fatal: true }).decode(b.subarray(i, i + n));
      out += text(c);
      i += n;
    } catch {
      out += hex(b[i]);
      i++;
    }
  }
  return out;
}

// from and to are the ends of a range as a person reads them.
export const from = (key) => keyText(key) || 'first key';
export const to = (key) => keyText(key) || 'last key';
export const span = (r) => `${from(r.start)} … ${to(r.end)}`;

// middle shortens a text in its middle: the ends of keys tell them apart.
export function middle(text, most) {
  const c = [...text];
  if (c.length <= most) return text;
  const head = Math.ceil((most - 1) / 2);
  return c.slice(0, head).join('') + '…' + c.slice(c.length - (most - 1 - head)).join('');
}
