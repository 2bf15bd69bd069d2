// Bars over the key space: one bar for a range, or for neighbours; and strips of partitions by their rows.

import { h } from './dom.js';
import { brief } from './format.js';

const height = 180;

function prepare(canvas, tall) {
  const css = getComputedStyle(document.documentElement);
  const colours = Object.fromEntries(
    [
      'text',
      'quiet',
      'line',
      'line-strong',
      'surface',
      'bar',
      'bar-over',
      'bar-move',
      'bar-new',
      'focus',
      'sunken',
    ].map((n) => [n, css.getPropertyValue('--' + n).trim()]),
  );
  const width = canvas.clientWidth;
  canvas.style.height = tall + 'px';
  canvas.width = width * devicePixelRatio;
  canvas.height = tall * devicePixelRatio;
  const g = canvas.getContext('2d');
  g.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
  g.clearRect(0, 0, width, tall);
  g.font = `11px ${getComputedStyle(document.body).fontFamily}`;
  return { g, width, colours };
}

// Bars are drawn into a canvas that can be pointed at and walked by arrow keys; onchoose gets the chosen bar.
export class Bars {
  constructor(page, onchoose, onopen) {
    this.chosen = -1;
    this.items = [];
    this.onchoose = onchoose;
    this.canvas = h('canvas', {
      tabindex: 0,
      role: 'application',
      'aria-roledescription': 'bars',
      'aria-label': 'Sizes of the ranges',
      onpointermove: (e) => this.choose(this.find(e)),
      onpointerleave: () => document.activeElement !== this.canvas && this.choose(-1),
      onclick: (e) => {
        const i = this.find(e);
        if (i >= 0) onopen(this.items[i]);
      },
      onkeydown: (e) => {
        const to = { ArrowLeft: this.chosen - 1, ArrowRight: this.chosen + 1, Home: 0, End: this.items.length - 1 }[
          e.key
        ];
        if (to !== undefined) {
          e.preventDefault();
          this.choose(Math.min(this.items.length - 1, Math.max(0, to)));
        } else if (e.key === 'Enter' && this.chosen >= 0) onopen(this.items[this.chosen]);
      },
    });
    this.frame = h('div', { class: 'bars' }, this.canvas);
    const again = () => this.draw();
    const size = new ResizeObserver(again);
    size.observe(this.frame);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', again, { signal: page.signal });
    page.signal.addEventListener('abort', () => size.disconnect());
  }

  // show draws items {value, over, moving} and lines {value, text}.
  show(items, lines) {
    this.items = items;
    this.lines = lines;
    if (this.chosen >= items.length) this.chosen = -1;
    this.draw();
  }

  find(e) {
    const box = this.canvas.getBoundingClientRect();
    const i = Math.floor(((e.clientX - box.left - this.left) / (box.width - this.left)) * this.items.length);
    return i >= 0 && i < this.items.length ? i : -1;
  }

  choose(i) {
    if (i === this.chosen) return;
    this.chosen = i;
    this.draw();
    this.onchoose(this.items[i] ?? null);
  }

  draw() {
    if (!this.lines || !this.canvas.isConnected || this.canvas.clientWidth === 0) return;
    const { g, width, colours } = prepare(this.canvas, height);
    const most = Math.max(
      1,
      ...this.lines.map((l) => l.value * 1.1),
      this.items.reduce((m, i) => Math.max(m, i.value), 0) * 1.02,
    );
    this.left = 44;
    const floor = height - 4;
    const up = (v) => floor - (v / most) * (floor - 10);
    g.fillStyle = colours.quiet;
    g.textAlign = 'right';
    g.textBaseline = 'middle';
    const each = (width - this.left) / Math.max(1, this.items.length);
    const gap = each >= 4 ? 1 : 0;
    this.items.forEach((item, i) => {
      const x = this.left + i * each;
      const w = Math.max(gap ? each - gap : each, 0.5);
      g.fillStyle = item.moving ? colours['bar-move'] : item.over ? colours['bar-over'] : colours.bar;
      const top = Math.min(up(item.value), floor - (item.value > 0 ? 1 : 0));
      g.fillRect(x, top, w, floor - top);
      if (i === this.chosen) {
        g.strokeStyle = colours.focus;
        g.lineWidth = 2;
        g.strokeRect(x - 1, Math.min(top, floor - 4) - 1, w + 2, floor - Math.min(top, floor - 4) + 2);
      }
    });
    g.strokeStyle = colours['line-strong'];
    g.lineWidth = 1;
    g.beginPath();
    g.moveTo(this.left, floor + 0.5);
    g.lineTo(width, floor + 0.5);
    g.stroke();
    let free = Infinity;
    for (const l of [...this.lines].sort((a, b) => a.value - b.value)) {
      const y = Math.round(up(l.value)) + 0.5;
      g.setLineDash([4, 3]);
      g.strokeStyle = colours.text;
      g.beginPath();
      g.moveTo(this.left, y);
      g.lineTo(width, y);
      g.stroke();
      g.setLineDash([]);
      if (Math.abs(free - y) < 12) continue;
      free = y;
      g.fillStyle = colours.text;
      g.fillText(brief(l.value), this.left - 6, y);
    }
  }
}

// strip draws partitions side by side, as wide as their rows: a cut that stays has the same place in two strips.
export function strip(canvas, parts, limits) {
  if (canvas.clientWidth === 0) return;
  const { g, width, colours } = prepare(canvas, 28);
  const all = parts.reduce((sum, p) => sum + p.rows, 0);
  // Without rows, all are as wide.
  const share = (p) => (all > 0 ? p.rows / all : 1 / parts.length);
  let x = 0;
  for (const p of parts) {
    const w = share(p) * width;
    g.fillStyle = p.rows > limits.max_rows ? colours['bar-over'] : p.fresh ? colours['bar-new'] : colours.bar;
    g.fillRect(x, 0, Math.max(w - (w > 3 ? 1 : 0), 0.5), 28);
    const text = brief(p.rows);
    if (w > g.measureText(text).width + 12) {
      g.fillStyle = colours.surface;
      g.textAlign = 'center';
      g.textBaseline = 'middle';
      g.fillText(text, x + w / 2, 15);
    }
    x += w;
  }
}
