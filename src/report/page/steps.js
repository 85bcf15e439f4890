/* steps.js - the step over time: passes of every stage, streams of one stage, and every operator of a window. */

const KIND_COLOUR = ['kind-f', 'kind-b', 'kind-i', 'kind-w', 'kind-fb'];
const KIND_NAME = ['forward', 'backward', 'input gradient', 'weight gradient', 'forward beside backward'];
const SLOT = 7; /* kind, microbatch, chunk, microbatch 2, chunk 2, start us, duration us */

function slotAt(slots, us) {
  /* index of the last slot that starts at or before `us`, -1 none */
  let lo = 0,
    hi = slots.length / SLOT;
  while (lo < hi) {
    const m = (lo + hi) >> 1;
    if (slots[m * SLOT + 5] <= us) lo = m + 1;
    else hi = m;
  }
  return lo - 1;
}
function describeSlot(slots, i, stage, chunks) {
  const s = slots.slice(i * SLOT, i * SLOT + SLOT),
    name = (mb, c) => `microbatch ${mb}${chunks > 1 ? `, chunk ${c}` : ''}`;
  return {
    title: `${KIND_NAME[s[0]]}, stage ${stage}`,
    rows: [
      [s[0] === 4 ? 'forward' : 'of', name(s[1], s[2])],
      s[0] === 4 ? ['backward', name(s[3], s[4])] : null,
      ['starts', text.seconds(s[5] / 1e6)],
      ['takes', text.seconds(s[6] / 1e6)],
    ],
  };
}

/* Slots of about a pixel and less: a strip one pixel high, of which each pixel is that of the slot in its middle, drawn
 * at once. A rectangle for each would take a hundred times as long. */
const strip = document.createElement('canvas');
function paintDense(ctx, slots, first, last, top, height, x, view, inks) {
  const left = x(view.from),
    width = Math.max(Math.round(x(view.to) - left), 1),
    perPixel = ((view.to - view.from) * 1e6) / width,
    image = new ImageData(width, 1),
    pixels = new Uint32Array(image.data.buffer),
    words = inks.map(c => (0xff000000 | (parseInt(c.slice(5, 7), 16) << 16) | (parseInt(c.slice(3, 5), 16) << 8) |
      parseInt(c.slice(1, 3), 16)) >>> 0);
  for (let px = 0, i = first; px < width; px++) {
    const us = view.from * 1e6 + (px + 0.5) * perPixel;
    while (i < last && slots[(i + 1) * SLOT + 5] <= us) i++;
    const at = i * SLOT;
    if (slots[at + 5] <= us && us < slots[at + 5] + Math.max(slots[at + 6], perPixel)) pixels[px] = words[slots[at]];
  }
  [strip.width, strip.height] = [width, 1];
  strip.getContext('2d').putImageData(image, 0, 0);
  ctx.imageSmoothingEnabled = false;
  ctx.drawImage(strip, left, top, width, height);
}

function paintSlots(ctx, slots, top, height, x, view) {
  const ink = {0: '#ffffff'},
    inks = KIND_COLOUR.map(colour);
  const first = Math.max(slotAt(slots, view.from * 1e6), 0),
    n = slotAt(slots, view.to * 1e6) + 1;
  if (n - first > (x(view.to) - x(view.from)) / 3)
    return paintDense(ctx, slots, first, n - 1, top, height, x, view, inks);
  for (let i = first; i < n; i++) {
    const at = i * SLOT,
      from = x(slots[at + 5] / 1e6),
      to = x((slots[at + 5] + slots[at + 6]) / 1e6);
    const w = to - from;
    ctx.fillStyle = inks[slots[at]];
    ctx.fillRect(from, top, Math.max(w - (w > 3 ? 0.8 : 0), 0.6), height);
    if (slots[at] === 4 && w > 3 && height > 6) {
      /* both at once: hatched, so that it does not rest on colour alone */
      ctx.fillStyle = 'rgba(255,255,255,.35)';
      ctx.fillRect(from, top + height / 2, Math.max(w - 0.8, 0.6), 1.5);
    }
    if (w > 22 && height >= 11) {
      ctx.fillStyle = ink[0];
      ctx.textAlign = 'center';
      const label = slots[at] === 4 && w > 46 ? `${slots[at + 1]}|${slots[at + 3]}` : `${slots[at + 1]}`;
      ctx.fillText(label, (Math.max(from, x(view.from)) + Math.min(to, x(view.to))) / 2, top + height / 2 + 0.5);
    }
  }
}

/* A pipeline of many microbatches is three windows on one scale: warm-up, a part of the steady middle, drain; null
 * where they would be most of the step. */
const FORWARDS = [0, 4];
function phasesOf(passes, to) {
  const starts = p => p.slots.filter((_, i) => i % SLOT === 5),
    kindAt = (p, i) => p.slots[i * SLOT],
    firstBack = p => starts(p).find((_, i) => kindAt(p, i) !== 0),
    lastForward = p => starts(p).findLast((_, i) => FORWARDS.includes(kindAt(p, i))),
    seconds = (of, least) => passes.map(of).reduce((a, b) => (least ? Math.min(a, b) : Math.max(a, b))) / 1e6,
    [warm, drain] = [seconds(firstBack), seconds(lastForward, true)],
    pair = (drain - warm) / Math.max(...passes.map(p => starts(p).filter((_, i) => kindAt(p, i) === 0).length)),
    span = Math.max((warm + to - drain) / 3, 4 * pair),
    middle = (warm + drain) / 2,
    phases = [
      ['warm-up', 0, warm + 2 * pair],
      ['steady part', middle - span / 2, middle + span / 2],
      ['drain', drain - 2 * pair, to],
    ];
  return sum(phases.map(([, a, b]) => b - a)) < 0.6 * to
    ? phases.map(([name, from, till]) => ({name, from, to: till}))
    : null;
}

function drawTimeline(run) {
  if (!run.passes) return;
  const node = section('timeline', 'Pipeline timeline', `Every pass of every stage over one step. ${zoomHelp}`),
    P = run.passes,
    to = run.makespan_s;
  const kinds = new Set(P.flatMap(p => p.slots.filter((_, i) => i % SLOT === 0)));
  const phases = phasesOf(P, to),
    whole = {name: 'step', from: 0, to};
  let handles = [],
    figure,
    shown = phases || [whole];
  const show = windows => {
    shown = windows;
    figure.draw();
  };
  node.append(
    controls(
      zoomButtons(() => ({zoom: f => handles.forEach(h => h.zoom(f)), reset: () => show([whole])})),
      phases && button('phases', 'Warm-up, steady part and drain', () => show(phases)),
      button('one microbatch', 'Zoom to the middle of the step', () => {
        const w = (run.windows || [])[0],
          from = Math.max(to / 2 - (w ? (w.to_s - w.from_s) * 2 : to / 40), 0);
        show([{name: 'middle', from, to: to - from}]);
      }),
    ),
  );
  node.append(legend([...kinds].sort().map(k => [`var(--${KIND_COLOUR[k]})`, KIND_NAME[k]])));
  figure = plot(
    node,
    (at, width) => {
      const h = P.length > 32 ? 10 : P.length > 12 ? 15 : 22,
        labels = `stage ${P[P.length - 1].stage}`.length * 6.6 + 12,
        perSecond = (width - labels - 12 * shown.length) / sum(shown.map(w => w.to - w.from));
      at.classList.toggle('windows', shown.length > 1);
      handles = shown.map((window, k) => {
        const view = {...window},
          place = shown.length > 1 ? html('div', {}, html('h3', {}, window.name)) : at,
          wide = (window.to - window.from) * perSecond + 8 + (k ? 0 : labels);
        if (place !== at) at.append(place);
        return timeCanvas(place, shown.length > 1 ? Math.floor(wide) : width, {
          to,
          view,
          home: window,
          label: `Passes of every stage over time, ${window.name}; arrow keys move, plus and minus zoom`,
          rows: P.map(p => ({label: k ? '' : `stage ${p.stage}`, height: h})),
          paint: (ctx, i, top, height, x) => paintSlots(ctx, P[i].slots, top, height, x, view),
          hit: (i, t) => {
            const k = slotAt(P[i].slots, t * 1e6),
              end = k >= 0 ? P[i].slots[k * SLOT + 5] + P[i].slots[k * SLOT + 6] : 0;
            return k >= 0 && t * 1e6 <= end
              ? describeSlot(P[i].slots, k, P[i].stage, run.placement.chunks)
              : {title: `stage ${P[i].stage} waits`, rows: [['at', text.seconds(t)]]};
          },
        });
      });
    },
    'Pipeline timeline',
  );
  const left = sum(P.map(p => p.left_out)),
    stages = run.result.stage_time.length;
  if (left || P.length < stages)
    node.append(
      html(
        'p',
        {class: 'note'},
        `Shown: ${P.length} of ${stages} ` +
        `stages${left ? `, without ${left} passes in the middle of the step` : ''}. The trace of moesim run ` +
        `--trace has all.`,
      ),
    );
}

/* --- streams and operators of one stage ------------------------------------------------------------------------- */
const STREAM_COLOUR = {compute: 'gemm', side: 'attention', d2h: 'host', h2d: 'host', states: 'host'};
function taskColour(tag, stream) {
  if (stream !== 'compute' && stream !== 'side') return STREAM_COLOUR[stream] || 'comm';
  const family = {
    gemm: 'gemm',
    grouped_gemm: 'grouped',
    attention: 'attention',
    adam: 'optimizer',
    grad_norm: 'optimizer',
  }[tag[1]];
  return family || 'memory';
}

/* The value of the bin at a share of the whole, 0 to 1. */
function binOf(bins, share) {
  return bins[Math.min(Math.floor(share * bins.length), bins.length - 1)];
}

function drawStreams(run, state) {
  if (!run.streams || !run.streams.length) return;
  const node = section(
    'overlap',
    'Streams and overlap',
    'What the streams of one GPU of a stage do at the same time. Communication above idle compute is exposed; ' +
    'above busy compute it is hidden.',
  );
  const stages = [...new Set(run.streams.map(s => s.stage))],
    tags = run.tags,
    tag = i => tags.slice(i * 4, i * 4 + 4);
  state.stage = stages.includes(state.stage) ? state.stage : stages[Math.floor(stages.length / 2)];
  let whole, window;
  node.append(
    controls(
      choice(
        'Stage',
        stages.map(s => [s, `${s}`]),
        state.stage,
        v => {
          state.stage = Number(v);
          whole.draw();
          window.draw();
        },
      ),
    ),
  );
  node.append(
    html('h3', {}, 'The whole step'),
    html('p', {class: 'note'}, 'Share of each moment in which the stream works: dark is all of it, light a little.'),
  );
  whole = plot(
    node,
    (at, width) => {
      const rows = run.streams.filter(s => s.stage === state.stage),
        view = {from: 0, to: run.makespan_s};
      timeCanvas(at, width, {
        to: run.makespan_s,
        view,
        label: `Streams of stage ${state.stage} over the step`,
        rows: rows.map(r => ({label: r.stream, height: 18})),
        paint: (ctx, i, top, height, x) => {
          const bins = rows[i].percent,
            bin = run.makespan_s / bins.length;
          ctx.fillStyle = colour(STREAM_COLOUR[rows[i].stream] || 'comm');
          bins.forEach((p, b) => {
            if (p > 0) {
              ctx.globalAlpha = 0.12 + (0.88 * p) / 100;
              ctx.fillRect(x(b * bin), top, Math.max(x((b + 1) * bin) - x(b * bin), 0.5) + 0.3, height);
            }
          });
          ctx.globalAlpha = 1;
        },
        hit: (i, t) => ({
          title: `${rows[i].stream}, stage ${state.stage}`,
          rows: [
            [
              'busy here',
              `${binOf(rows[i].percent, t / run.makespan_s)} %`,
            ],
            ['busy in all', `${text.seconds(rows[i].busy_s)} (${text.percent(rows[i].busy_s / run.makespan_s)})`],
            ['at', text.seconds(t)],
          ],
        }),
      });
    },
    'Streams of a stage',
  );

  node.append(
    html('h3', {}, 'Operator by operator'),
    html(
      'p',
      {class: 'note'},
      `One forward and the backward after it in the middle of the step, every kernel and message. ${zoomHelp}`,
    ),
  );
  node.append(
    legend([
      ['var(--gemm)', 'GEMM'],
      ['var(--grouped)', 'grouped GEMM'],
      ['var(--attention)', 'attention'],
      ['var(--memory)', 'memory-bound'],
      ['var(--comm)', 'communication'],
      ['var(--host)', 'host copies'],
    ]),
  );
  let handle = null;
  node.append(controls(zoomButtons(() => handle)));
  window = plot(
    node,
    (at, width) => {
      const w = run.windows.find(v => v.stage === state.stage);
      if (!w) {
        at.append(
          html(
            'p',
            {class: 'note'},
            'The operators of this stage are left out to keep the page small; moesim run --trace has them all.',
          ),
        );
        return;
      }
      const lanes = by(
          i => w.tasks[i],
          [...Array(w.tasks.length / 4).keys()].map(i => i * 4),
        ),
        order = [...lanes.keys()].sort((a, b) => a - b);
      for (const list of lanes.values()) list.sort((a, b) => w.tasks[a + 2] - w.tasks[b + 2]);
      const span = w.to_s - w.from_s,
        view = {from: 0, to: span},
        name = s => run.stream_kinds[s];
      handle = timeCanvas(at, width, {
        to: span,
        view,
        label: `Operators of stage ${w.stage}`,
        rows: order.map(s => ({label: name(s), height: 24})),
        paint: (ctx, r, top, height, x) => {
          for (const i of lanes.get(order[r])) {
            const from = x(w.tasks[i + 2] / 1e9),
              wide = x((w.tasks[i + 2] + w.tasks[i + 3]) / 1e9) - from,
              t = tag(w.tasks[i + 1]);
            if (from > width || from + wide < 0) continue;
            ctx.fillStyle = colour(taskColour(t, name(order[r])));
            ctx.fillRect(from, top, Math.max(wide - (wide > 2.5 ? 0.7 : 0), 0.5), height);
            if (wide > 44) {
              ctx.fillStyle = '#ffffff';
              ctx.textAlign = 'left';
              const fits = Math.floor((wide - 6) / 6.2),
                label = t[0].length > fits ? `${t[0].slice(0, fits - 1)}…` : t[0];
              ctx.fillText(label, Math.max(from, x(view.from)) + 3, top + height / 2 + 0.5);
            }
          }
        },
        hit: (r, t, pixel) => {
          const near = lanes
            .get(order[r])
            .find(i => t >= w.tasks[i + 2] / 1e9 - pixel && t <= (w.tasks[i + 2] + w.tasks[i + 3]) / 1e9 + pixel);
          if (near === undefined) return {title: `${name(order[r])} idle`, rows: [['at', text.seconds(w.from_s + t)]]};
          const g = tag(w.tasks[near + 1]);
          return {
            title: g[0],
            rows: [
              ['operator', g[1]],
              ['pass', g[2]],
              g[3] ? ['group', g[3]] : null,
              ['takes', text.seconds(w.tasks[near + 3] / 1e9)],
              ['starts', text.seconds(w.from_s + w.tasks[near + 2] / 1e9)],
            ],
          };
        },
      });
    },
    'Operators of a window',
  );
}
