// The drawing of the key visualizer: cells of time and keys, axes, events, and the cursor. It knows nothing of
// pages; it answers where things are.

import { Scale, shade } from './colour.js';
import { keyBytes, keyText, middle, time } from './format.js';

const font = (size) => `${size}px ${getComputedStyle(document.body).fontFamily}`;
const mono = '11px "JetBrains Mono", ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace';
const axis = 24; // px, the height of the times

// compare orders keys bytewise.
export function compare(a, b) {
  for (let i = 0; i < a.length && i < b.length; i++) if (a[i] !== b[i]) return a[i] - b[i];
  return a.length - b.length;
}

// Heat is the answer of /v1/heat, with ways to find cells.
export class Heat {
  constructor(answer) {
    Object.assign(this, answer);
    this.columns = Math.max(0, answer.times.length - 1);
    this.rows = Math.max(0, answer.keys.length - 1);
    this.edges = answer.keys.map(keyBytes);
    // An empty end is beyond all keys; the window may end before it.
    // The newest column of which something is known: the last one may not have been counted yet.
    this.newest = this.columns - 1;
    while (this.newest > 0 && !this.known(this.newest)) this.newest--;
    this.open = this.rows > 0 && this.edges[this.rows].length === 0;
  }

  // at is the value of a cell; -1: nothing is known.
  at(of, x, y) {
    return this.metrics[of].cells[x * this.rows + y];
  }

  known(x) {
    return Object.values(this.metrics).some((m) =>
      m.cells.slice(x * this.rows, (x + 1) * this.rows).some((v) => v >= 0),
    );
  }

  // place of a key, in rows from the first key on; the last row's end if it is empty and an end.
  place(key, end = false) {
    const k = keyBytes(key);
    if (end && k.length === 0) return this.rows;
    let low = 0;
    let high = this.rows;
    while (low < high) {
      const mid = (low + high) >> 1;
      const beyond = mid === this.rows && this.open;
      if (!beyond && compare(this.edges[mid], k) <= 0) low = mid + 1;
      else high = mid;
    }
    if (low === 0) return 0;
    const on = compare(this.edges[low - 1], k) === 0;
    return on ? low - 1 : Math.min(this.rows, low - 0.5); // somewhere inside of a row: its middle
  }

  column(at) {
    const t = new Date(at) / 1000;
    for (let x = this.columns - 1; x >= 0; x--) if (t >= this.times[x]) return x;
    return -1;
  }

  // x of a time in columns, with a fraction.
  across(at) {
    const t = at instanceof Date || typeof at === 'string' ? new Date(at) / 1000 : at;
    for (let x = this.columns - 1; x > 0; x--) {
      if (t >= this.times[x])
        return Math.min(this.columns, x + (t - this.times[x]) / (this.times[x + 1] - this.times[x]));
    }
    return (t - this.times[0]) / (this.times[1] - this.times[0]);
  }

  cell(x, y) {
    return { x, y, start: this.keys[y], end: this.keys[y + 1], begin: this.times[x], until: this.times[x + 1] };
  }
}

// glyphs are the shapes of events, around 0, 0.
export const glyphs = {
  split: { name: 'split', path: 'M0 -5L5 0L0 5L-5 0Z' },
  merge: { name: 'merge', path: 'M-4 -4H4V4H-4Z' },
  roll: { name: 'roll: a cut ahead of appended keys', path: 'M0 -5L5 4H-5Z' },
  move: { name: 'other moves', path: 'M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0Z' },
};
export const glyphOf = (kind) => (glyphs[kind] ? kind : kind === 'presplit' ? 'split' : 'move');

// Picture draws into two canvases: cells and axes below, the cursor above.
export class Picture {
  constructor(below, above) {
    this.below = below;
    this.above = above;
    this.heat = null;
  }

  // draw draws heat by one metric. It returns the scale, for the legend.
  draw(heat, of) {
    this.heat = heat;
    this.of = of;
    const css = getComputedStyle(document.documentElement);
    this.colours = Object.fromEntries(
      ['text', 'quiet', 'surface', 'line', 'line-strong', 'sunken', 'focus'].map((n) => [
        n,
        css.getPropertyValue('--' + n).trim(),
      ]),
    );
    const width = this.below.clientWidth;
    const height = width < 560 ? 360 : 480;
    this.gutter = width < 560 ? 72 : 148;
    this.box = { left: this.gutter, top: 8, width: Math.max(1, width - this.gutter - 8), height: height - axis - 8 };
    for (const c of [this.below, this.above]) {
      c.style.height = height + 'px';
      c.width = width * devicePixelRatio;
      c.height = height * devicePixelRatio;
    }
    this.scale = new Scale(heat.metrics[of].max);
    const g = this.below.getContext('2d');
    g.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
    g.clearRect(0, 0, width, height);
    this.cells(g);
    this.times(g);
    this.keys(g);
    this.events(g);
    return this.scale;
  }

  cells(g) {
    const { heat, of, box } = this;
    this.hatch(g);
    const image = new ImageData(heat.columns, heat.rows);
    for (let x = 0; x < heat.columns; x++) {
      for (let y = 0; y < heat.rows; y++) {
        const v = heat.at(of, x, y);
        if (v < 0) continue; // what is not known stays hatched
        const [r, gr, b] = shade(this.scale.share(v));
        image.data.set([r, gr, b, 255], 4 * ((heat.rows - 1 - y) * heat.columns + x));
      }
    }
    const small = new OffscreenCanvas(heat.columns, heat.rows);
    small.getContext('2d').putImageData(image, 0, 0);
    g.imageSmoothingEnabled = false;
    // Columns lie where their times are: some may be missing.
    for (let x = 0; x < heat.columns; x++) {
      const [left, right] = [this.left(x), this.left(x + 1)];
      g.drawImage(small, x, 0, 1, heat.rows, left, box.top, right - left, box.height);
    }
    g.strokeStyle = this.colours['line-strong'];
    g.lineWidth = 1;
    g.strokeRect(box.left - 0.5, box.top - 0.5, box.width + 1, box.height + 1);
  }

  hatch(g) {
    const { box } = this;
    g.save();
    g.beginPath();
    g.rect(box.left, box.top, box.width, box.height);
    g.clip();
    g.fillStyle = this.colours.surface;
    g.fill();
    g.strokeStyle = this.colours.line;
    g.lineWidth = 1;
    g.beginPath();
    for (let x = box.left - box.height; x < box.left + box.width; x += 8) {
      g.moveTo(x, box.top + box.height);
      g.lineTo(x + box.height, box.top);
    }
    g.stroke();
    g.restore();
  }

  // left is the pixel at which a column begins, on whole pixels so that no seams show.
  left(x) {
    const { heat, box } = this;
    const from = heat.times[0];
    const all = heat.times[heat.columns] - from;
    return Math.round(box.left + ((heat.times[x] - from) / all) * box.width);
  }

  // pixel of a place in rows.
  pixel(row) {
    return this.box.top + this.box.height * (1 - row / this.heat.rows);
  }

  times(g) {
    const { heat, box } = this;
    const from = heat.times[0];
    const all = heat.times[heat.columns] - from;
    const room = 64;
    const step =
      [60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800].find(
        (s) => (s / all) * box.width >= room,
      ) ?? 604800;
    const zone = new Date(from * 1000).getTimezoneOffset() * 60;
    g.font = font(11);
    g.fillStyle = this.colours.quiet;
    g.strokeStyle = this.colours['line-strong'];
    g.textBaseline = 'top';
    const first = Math.ceil((from - zone) / step) * step + zone;
    let free = -Infinity;
    for (let t = first; t <= from + all; t += step) {
      const x = box.left + ((t - from) / all) * box.width;
      const text = time(t * 1000, false);
      const half = g.measureText(text).width / 2;
      const at = Math.min(Math.max(x, box.left + half), box.left + box.width - half);
      if (at - half < free + 8) continue;
      free = at + half;
      g.textAlign = 'center';
      g.fillText(text, at, box.top + box.height + 9);
      g.beginPath();
      g.moveTo(Math.round(x) + 0.5, box.top + box.height);
      g.lineTo(Math.round(x) + 0.5, box.top + box.height + 5);
      g.stroke();
    }
  }

  // keys names edges of rows where there is room, the first at the bottom.
  keys(g) {
    const { heat, box } = this;
    g.font = mono;
    const wide = g.measureText('0').width;
    const most = Math.max(6, Math.floor((this.gutter - 12) / wide));
    const each = box.height / heat.rows;
    const every = Math.max(1, Math.ceil(20 / each));
    // Hairlines between ranges, where these are tall.
    g.globalAlpha = 0.5;
    g.fillStyle = this.colours.surface;
    for (let y = 1; y < heat.rows && each >= 8; y++) g.fillRect(box.left, Math.round(this.pixel(y)), box.width, 1);
    g.globalAlpha = 1;
    g.textAlign = 'right';
    for (let y = 0; y < heat.rows; y += every) {
      const line = this.pixel(y);
      g.strokeStyle = this.colours['line-strong'];
      g.beginPath();
      g.moveTo(box.left - 5, Math.round(line) - 0.5);
      g.lineTo(box.left, Math.round(line) - 0.5);
      g.stroke();
      g.fillStyle = this.colours.quiet;
      g.textBaseline = 'bottom';
      g.fillText(middle(keyText(heat.keys[y]) || 'first key', most), box.left - 8, line + (y === 0 ? 0 : 7));
    }
    g.textBaseline = 'top';
    if (box.height - Math.floor((heat.rows - 1) / every) * every * each > 24) {
      g.fillText(middle(keyText(heat.keys[heat.rows]) || 'last key', most), box.left - 8, box.top - 1);
    }
  }

  // events draws each where and when it happened. marks are their places, for who points at one.
  events(g) {
    const { heat, box } = this;
    this.marks = [];
    const seen = new Map();
    for (const e of heat.events) {
      const when = e.ended ?? e.began ?? e.asked;
      const across = heat.across(when);
      if (!(across >= 0 && across <= heat.columns)) continue;
      const low = heat.place(e.start);
      const high = heat.place(e.end, true);
      if (high <= 0 || low >= heat.rows) continue;
      const column = Math.min(Math.floor(across), heat.columns - 1);
      const x = this.left(column) + (across - column) * (this.left(column + 1) - this.left(column));
      const cut = e.cuts?.length ? heat.place(e.cuts[0]) : (low + high) / 2;
      const mark = { event: e, x, top: this.pixel(high), bottom: this.pixel(low), y: this.pixel(cut) };
      this.marks.push(mark);
      // Where many lie on one place, one glyph stands for all.
      const at = `${Math.round(x / 9)},${Math.round(mark.y / 9)},${glyphOf(e.kind)}`;
      mark.hidden = seen.has(at);
      seen.set(at, mark);
    }
    for (const m of this.marks) {
      for (const [wide, colour] of [
        [3, this.colours.surface],
        [1.25, this.colours.text],
      ]) {
        g.strokeStyle = colour;
        g.lineWidth = wide;
        g.beginPath();
        g.moveTo(m.x, Math.max(box.top, m.top));
        g.lineTo(m.x, Math.min(box.top + box.height, m.bottom));
        g.stroke();
      }
    }
    for (const m of this.marks) {
      if (m.hidden) continue;
      g.save();
      g.translate(m.x, m.y);
      const path = new Path2D(glyphs[glyphOf(m.event.kind)].path);
      g.fillStyle = this.colours.surface;
      g.fill(path);
      g.strokeStyle = this.colours.text;
      g.lineWidth = 1.5;
      g.stroke(path);
      g.restore();
    }
  }

  // find is the cell at a point of the canvas, or null.
  find(px, py) {
    const { heat, box } = this;
    if (!heat || px < box.left || px >= box.left + box.width || py < box.top || py >= box.top + box.height) return null;
    let x = 0;
    while (x + 1 < heat.columns && this.left(x + 1) <= px) x++;
    return heat.cell(
      x,
      Math.min(heat.rows - 1, Math.max(0, Math.floor((1 - (py - box.top) / box.height) * heat.rows))),
    );
  }

  // near are the events of a cell: of its time and of keys in its row.
  near(cell) {
    return this.marks
      .filter(({ event: e }) => {
        const when = this.heat.across(e.ended ?? e.began ?? e.asked);
        return (
          when >= cell.x &&
          when <= cell.x + 1 &&
          this.heat.place(e.start) < cell.y + 1 &&
          this.heat.place(e.end, true) > cell.y
        );
      })
      .map((m) => m.event);
  }

  // cursor draws the chosen cell, and what is being selected.
  cursor(cell, selection) {
    const g = this.above.getContext('2d');
    g.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
    g.clearRect(0, 0, this.above.width, this.above.height);
    if (!this.heat) return;
    const outline = (x, y, w, h) => {
      for (const [wide, colour] of [
        [4, this.colours.surface],
        [2, this.colours.focus],
      ]) {
        g.strokeStyle = colour;
        g.lineWidth = wide;
        g.strokeRect(x, y, w, h);
      }
    };
    if (selection) outline(...selection);
    if (!cell || cell.x >= this.heat.columns || cell.y >= this.heat.rows) return;
    const [left, right] = [this.left(cell.x), this.left(cell.x + 1)];
    const [top, bottom] = [this.pixel(cell.y + 1), this.pixel(cell.y)];
    const pad = Math.max(0, 6 - (bottom - top)) / 2;
    outline(left, top - pad, Math.max(3, right - left), bottom - top + 2 * pad);
  }
}

// ramp draws the scale of a legend.
export function ramp(canvas) {
  const width = canvas.clientWidth || 340;
  canvas.width = width;
  canvas.height = 12;
  const g = canvas.getContext('2d');
  for (let x = 0; x < width; x++) {
    const [r, gr, b] = shade(x / (width - 1));
    g.fillStyle = `rgb(${r} ${gr} ${b})`;
    g.fillRect(x, 0, 1, 12);
  }
}
