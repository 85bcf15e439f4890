/* diff.js - two steps beside each other: bars of every class on one scale, the streams of both over one time. */

const CLASS_COLOUR = {
  gemm: 'gemm',
  grouped_gemm: 'grouped',
  attention: 'attention',
  optimizer: 'optimizer',
  memcpy: 'host',
  host: 'host',
  unrecognised: 'other',
};
const MESSAGES = [
  'all_gather',
  'reduce_scatter',
  'all_reduce',
  'all_to_all',
  'p2p',
  'dispatch',
  'combine',
  'exchange_wait',
  'collective',
  'communication',
];
const classColour = word => CLASS_COLOUR[word] || (MESSAGES.includes(word) ? 'comm' : 'memory');
const SPAN = 3; /* class, start us, length us */

/* The last span that starts at or before `us`, -1 none. */
function spanAt(spans, us) {
  let lo = 0,
    hi = spans.length / SPAN;
  while (lo < hi) {
    const m = (lo + hi) >> 1;
    if (spans[m * SPAN + 1] <= us) lo = m + 1;
    else hi = m;
  }
  return lo - 1;
}

function drawDiffBars(node, d) {
  const rows = d.diff.classes,
    longest = Math.max(...rows.flatMap(r => [r.a_s, r.b_s]));
  plot(
    node,
    (at, width) => {
      const narrow = width < 560,
        left = narrow ? 0 : 128,
        top = narrow ? 18 : 3,
        bar = 11,
        row = top + 2 * bar + 9,
        right = 168,
        inner = Math.max(width - left - right, 60);
      const height = rows.length * row + 4,
        picture = frame(width, height);
      rows.forEach((r, i) => {
        const y = i * row + top;
        picture.append(
          svg(
            'text',
            narrow ? {class: 'strong', x: 0, y: y - 5} : {x: left - 8, y: y + bar + 4, 'text-anchor': 'end'},
            r.class,
          ),
        );
        [r.a_s, r.b_s].forEach((seconds, k) => {
          picture.append(
            marked(
              svg('rect', {
                x: left,
                y: y + k * (bar + 1),
                width: Math.max((seconds / longest) * inner, 0.5),
                height: bar,
                style: `fill:var(--${classColour(r.class)});opacity:${k ? 0.55 : 1}`,
              }),
              () => ({
                title: `${r.class}, ${d.titles[k]}`,
                rows: [
                  ['time', text.seconds(seconds)],
                  known(r.ratio) ? ['ratio', r.ratio.toFixed(3)] : null,
                  ['at stake', text.seconds(r.stake_s)],
                ],
              }),
            ),
          );
          picture.append(
            svg('text', {class: 'soft s', x: left + (seconds / longest) * inner + 6, y: y + k * (bar + 1) + 10},
              text.seconds(seconds) + (k === 0 && known(r.ratio) ? `  × ${r.ratio.toFixed(2)}` : '')),
          );
        });
      });
      at.append(picture);
    },
    'Time of every class of kernels, both steps',
  );
}

function drawDiffLanes(node, d) {
  const lanes = d.lanes.flatMap((side, k) => side.map(s => ({side: k, name: s.name, spans: s.spans})));
  if (!lanes.length) return;
  const ends = lanes.map(l => (l.spans.length ? l.spans[l.spans.length - 2] + l.spans[l.spans.length - 1] : 0) / 1e6),
    to = Math.max(d.diff.a.step_s || 0, d.diff.b.step_s || 0, ...ends),
    view = {from: 0, to};
  let handle = null;
  node.append(
    html('h3', {}, 'Both over time'),
    html('p', {class: 'note'}, `Streams of a step of each, from its beginning, on one scale. ${zoomHelp}`),
    controls(zoomButtons(() => handle)),
  );
  plot(
    node,
    (at, width) => {
      handle = timeCanvas(at, width, {
        to,
        view,
        label: `Streams of both steps; ${d.titles[0]} above, ${d.titles[1]} below`,
        rows: lanes.map(l => ({label: `${l.side ? 'B' : 'A'} ${l.name}`, height: 18})),
        paint: (ctx, i, top, height, x) => {
          const spans = lanes[i].spans;
          for (let k = Math.max(spanAt(spans, view.from * 1e6), 0) * SPAN; k < spans.length; k += SPAN) {
            const from = x(spans[k + 1] / 1e6),
              wide = x((spans[k + 1] + spans[k + 2]) / 1e6) - from;
            if (spans[k + 1] / 1e6 > view.to) break;
            ctx.fillStyle = colour(classColour(d.words[spans[k]]));
            ctx.fillRect(from, top, Math.max(wide, 0.5), height);
          }
        },
        hit: (i, t) => {
          const spans = lanes[i].spans,
            k = spanAt(spans, t * 1e6) * SPAN,
            title = `${d.titles[lanes[i].side]}, stream ${lanes[i].name}`;
          if (k < 0 || t * 1e6 > spans[k + 1] + spans[k + 2]) return {title, rows: [['idle at', text.seconds(t)]]};
          return {
            title,
            rows: [
              ['class', d.words[spans[k]]],
              ['starts', text.seconds(spans[k + 1] / 1e6)],
              ['takes', text.seconds(spans[k + 2] / 1e6)],
            ],
          };
        },
      });
    },
    'Streams of both steps',
  );
}

function drawDiff(d) {
  if (!d) return;
  const side = (p, k) =>
    html('p', {class: 'note'}, html('b', {}, `${'AB'[k]}, ${d.titles[k]}: `),
      `${p.file} (${[p.kind, p.device, p.stage >= 0 ? `stage ${p.stage}` : null].filter(Boolean).join(', ')}), ` +
      `step ${text.seconds(p.step_s)}`);
  const node = section(
    'diff',
    'Two steps beside each other',
    'Time of every class of kernels in a step, all of them one behind the other: the first full, the second pale, ' +
    'the costliest difference first.',
  );
  node.append(side(d.diff.a, 0), side(d.diff.b, 1));
  drawDiffBars(node, d);
  const figures = r => [
    text.seconds(r.a_s),
    text.seconds(r.b_s),
    known(r.ratio) ? r.ratio.toFixed(3) : '',
    known(r.stake_s) ? `${r.stake_s < 0 ? '−' : '+'}${text.seconds(Math.abs(r.stake_s))}` : '',
  ];
  const head = [...d.titles, 'ratio', 'at stake'];
  node.append(
    folded('as a table', () => table(['class', ...head], d.diff.classes.map(r => [r.class, ...figures(r)]), [0])),
    folded('streams', () =>
      table(['streams', ...head], d.diff.streams.map(r => [`${r.a || '–'} | ${r.b || '–'}`, ...figures(r)]), [0])),
  );
  if (d.diff.configuration.length)
    node.append(
      folded('what differs in the configurations', () =>
        table(['key', ...d.titles], d.diff.configuration.map(k => [k.key, k.a, k.b]), [0, 1, 2])),
    );
  drawDiffLanes(node, d);
}
