// The colours of the key visualizer: one scale from the page's background to its strongest contrast.
// Lightness alone tells more from less, so that the colour-blind and a grey print can read it.

// Stops in OKLCH: lightness, chroma, hue.
const stops = {
  light: [
    [0.955, 0.02, 105],
    [0.88, 0.1, 92],
    [0.76, 0.15, 62],
    [0.62, 0.19, 30],
    [0.46, 0.17, 350],
    [0.27, 0.1, 300],
  ],
  dark: [
    [0.25, 0.035, 275],
    [0.37, 0.11, 290],
    [0.51, 0.17, 350],
    [0.66, 0.17, 35],
    [0.81, 0.14, 75],
    [0.955, 0.07, 105],
  ],
};

const steps = 256;
const tables = {};

function gamma(x) {
  const v = x <= 0.0031308 ? 12.92 * x : 1.055 * x ** (1 / 2.4) - 0.055;
  return Math.round(255 * Math.min(1, Math.max(0, v)));
}

function srgb(l, a, b) {
  const L = (l + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const M = (l - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const S = (l - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    gamma(4.0767416621 * L - 3.3077115913 * M + 0.2309699292 * S),
    gamma(-1.2684380046 * L + 2.6097574011 * M - 0.3413193965 * S),
    gamma(-0.0041960863 * L - 0.7034186147 * M + 1.707614701 * S),
  ];
}

function table(theme) {
  if (tables[theme]) return tables[theme];
  const lab = stops[theme].map(([l, c, h]) => [
    l,
    c * Math.cos((h * Math.PI) / 180),
    c * Math.sin((h * Math.PI) / 180),
  ]);
  const out = [];
  for (let i = 0; i < steps; i++) {
    const x = (i / (steps - 1)) * (lab.length - 1);
    const at = Math.min(Math.floor(x), lab.length - 2);
    const mix = (j) => lab[at][j] + (lab[at + 1][j] - lab[at][j]) * (x - at);
    out.push(srgb(mix(0), mix(1), mix(2)));
  }
  return (tables[theme] = out);
}

export const theme = () => (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light');

// shade is the colour [r, g, b] of a share of the scale.
export function shade(share, name = theme()) {
  return table(name)[Math.round(Math.min(1, Math.max(0, share)) * (steps - 1))];
}

// Scale gives values shares of the colours: nothing is 0; the largest value is 1; below it each factor of
// ten is a third. So what differs a hundredfold can be seen in one picture.
export class Scale {
  constructor(most) {
    this.most = most > 0 ? ceiling(most) : 1;
    this.decades = 3;
  }

  share(value) {
    if (!(value > 0)) return 0;
    const x = 1 + Math.log10(value / this.most) / this.decades;
    return 0.06 + 0.94 * Math.min(1, Math.max(0, x));
  }

  // value is the inverse of share; 0 for what is below the scale.
  value(share) {
    return share < 0.06 ? 0 : this.most * 10 ** (((share - 0.06) / 0.94 - 1) * this.decades);
  }

  // ticks are the values that a legend names.
  ticks() {
    return [0, ...Array.from({ length: this.decades + 1 }, (_, i) => this.most * 10 ** (i - this.decades))];
  }
}

// ceiling is the next 1, 2 or 5 times a power of ten.
function ceiling(x) {
  const power = 10 ** Math.floor(Math.log10(x));
  return power * [1, 2, 5, 10].find((n) => n * power >= x * (1 - 1e-9));
}
