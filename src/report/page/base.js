'use strict';
/* base.js - elements, numbers for people, colours. Text from data only ever goes in as text nodes. */

const SVG_NS = 'http://www.w3.org/2000/svg';

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith('on')) node.addEventListener(key.slice(2), value);
    else if (key === 'style') node.style.cssText = value; // the policy of the page lets no attribute say it
    else node.setAttribute(key, value === true ? '' : value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) node.append(child);
  return node;
}
const html = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
const svg = (name, attributes, ...children) => fill(document.createElementNS(SVG_NS, name), attributes, children);

const known = value => typeof value === 'number' && Number.isFinite(value);
function digits(value, places = 3) {
  /* three significant digits, no exponent */
  if (!known(value)) return '–';
  if (value === 0) return '0';
  const size = Math.floor(Math.log10(Math.abs(value)));
  return value.toLocaleString('en-US', {
    maximumFractionDigits: Math.min(Math.max(places - 1 - size, 0), 9),
    minimumFractionDigits: 0,
  });
}
function scaled(value, steps) {
  /* the largest step that leaves a figure of at least 1 */
  if (!known(value)) return 'unknown';
  const step = steps.find(([unit]) => Math.abs(value) >= unit * 0.9995) || steps[steps.length - 1];
  return `${digits(value / step[0])} ${step[1]}`;
}
const text = {
  seconds: v =>
    v === 0
      ? '0 s'
      : scaled(v, [
          [1, 's'],
          [1e-3, 'ms'],
          [1e-6, 'µs'],
          [1e-9, 'ns'],
        ]),
  bytes: v =>
    v === 0
      ? '0 B'
      : scaled(v, [
          [2 ** 40, 'TiB'],
          [2 ** 30, 'GiB'],
          [2 ** 20, 'MiB'],
          [2 ** 10, 'KiB'],
          [1, 'B'],
        ]),
  GiB: v => (known(v) ? `${(v / 2 ** 30).toFixed(2)} GiB` : 'unknown'),
  rate: v =>
    scaled(v, [
      [1e12, 'TB/s'],
      [1e9, 'GB/s'],
      [1e6, 'MB/s'],
      [1, 'B/s'],
    ]),
  flops: v =>
    scaled(v, [
      [1e15, 'PFLOP/s'],
      [1e12, 'TFLOP/s'],
      [1e9, 'GFLOP/s'],
      [1, 'FLOP/s'],
    ]),
  count: v =>
    scaled(v, [
      [1e12, 'T'],
      [1e9, 'B'],
      [1e6, 'M'],
      [1e3, 'k'],
      [1, ''],
    ]).trim(),
  percent: v => (known(v) ? `${(100 * v).toFixed(1)} %` : '–'),
  signed: v => (known(v) ? `${v > 0 ? '+' : v < 0 ? '−' : '±'}${Math.abs(100 * v).toFixed(1)} %` : '–'),
  number: digits,
};

const colour = name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
/* Ordered values: dark blue to yellow by lightness (after viridis), so that the order survives any colour vision.
   `at` in [0, 1]. */
const RAMP = [
  [68, 1, 84],
  [70, 50, 127],
  [54, 92, 141],
  [39, 127, 142],
  [31, 161, 135],
  [74, 194, 109],
  [159, 218, 58],
  [253, 231, 37],
];
function ramp(at) {
  const x = Math.min(Math.max(at, 0), 1) * (RAMP.length - 1),
    i = Math.min(Math.floor(x), RAMP.length - 2),
    f = x - i;
  return `rgb(${RAMP[i].map((c, k) => Math.round(c + f * (RAMP[i + 1][k] - c))).join(',')})`;
}
const rampOf = (index, size) => ramp(size > 1 ? index / (size - 1) : 0.3);
function lineOf(index, size) {
  /* for thin lines: without the end of the ramp that the background swallows */
  const [r, g, b] = [1, 3, 5].map(i => parseInt(colour('card').slice(i, i + 2), 16)),
    [lo, hi] = r + g + b < 384 ? [0.35, 1] : [0, 0.8];
  return ramp(size > 1 ? lo + ((hi - lo) * index) / (size - 1) : (lo + hi) / 2);
}

/* Round values from lo to hi, about `count` of them. */
function ticks(lo, hi, count) {
  const span = hi - lo;
  if (!(span > 0)) return [lo];
  const raw = span / Math.max(count, 1),
    unit = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map(k => k * unit).find(s => s >= raw * 0.999);
  const list = [];
  for (let v = Math.ceil(lo / step - 1e-9) * step; v <= hi + step * 1e-9; v += step)
    list.push(Math.abs(v) < step * 1e-9 ? 0 : v);
  return list;
}
function timeTicks(lo, hi, count) {
  /* [[seconds, label]], with as many decimals as their distance needs */
  const list = ticks(lo, hi, count),
    step = list.length > 1 ? list[1] - list[0] : hi - lo || 1;
  const [unit, word] = [
    [1, 's'],
    [1e-3, 'ms'],
    [1e-6, 'µs'],
  ].find(([u]) => Math.abs(hi) >= u) || [1e-6, 'µs'];
  const places = Math.max(0, Math.ceil(-Math.log10(step / unit) - 1e-6));
  return list.map(t => [t, `${(t / unit).toFixed(places)} ${word}`]);
}
/* Ticks of a logarithmic axis: 1, 2, 5 of every decade, its decades where that would be too many, evenly spaced round
 * values where too few. */
function logTicks(lo, hi) {
  const list = [];
  for (let e = Math.floor(Math.log10(lo)); e <= Math.ceil(Math.log10(hi)); e++)
    list.push(...[1, 2, 5].map(k => k * 10 ** e).filter(v => v >= lo * (1 - 1e-9) && v <= hi * (1 + 1e-9)));
  if (list.length > 9) return list.filter(v => Number.isInteger(Math.round(Math.log10(v) * 1e9) / 1e9));
  return list.length > 2 ? list : ticks(lo, hi, 5);
}

/* What the program says, in the page's signs. A sentence of the program may begin with the name of a run. */
const said = line => line.replace(/\+-(?=\d)/g, '± ').replace(/ -> /g, ' → ');
const sentence = (line, name) =>
  `${name && line.startsWith(name) ? line[0] : line[0].toUpperCase()}${said(line).slice(1)}.`;

/* Ascending integers as ranges: "0–3, 8, 10–11", at most `most` of them. */
function ranges(list, most = 6) {
  const parts = [];
  for (let i = 0; i < list.length;) {
    let j = i;
    while (j + 1 < list.length && list[j + 1] === list[j] + 1) j++;
    parts.push(j > i ? `${list[i]}–${list[j]}` : `${list[i]}`);
    i = j + 1;
  }
  return parts.length > most ? `${parts.slice(0, most).join(', ')}, … (${list.length})` : parts.join(', ');
}
const sum = list => list.reduce((a, b) => a + b, 0);
const by = (key, list) => {
  const m = new Map();
  for (const x of list) {
    const k = key(x);
    m.has(k) ? m.get(k).push(x) : m.set(k, [x]);
  }
  return m;
};
