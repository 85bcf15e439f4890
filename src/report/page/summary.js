/* summary.js - the answer in figures, runs side by side, where the step goes, the way from peak to MFU. */

const PARTS = [
  /* of MsTimeParts, in the order of the bars: name, colour, seconds */ [
    'GEMM',
    'gemm',
    p => p.compute_by_family.gemm,
  ],
  ['grouped GEMM', 'grouped', p => p.compute_by_family.grouped_gemm],
  ['attention', 'attention', p => p.compute_by_family.attention],
  ['memory-bound', 'memory', p => p.compute_by_family.memory_bound],
  ['exposed communication', 'comm', p => p.exposed_comm_s],
  ['pipeline bubble', 'bubble', p => p.bubble_s],
  ['host', 'host', p => p.host_s],
  ['optimizer', 'optimizer', p => p.optimizer_s],
  ['other', 'other', p => p.other_s + p.compute_s - sum(Object.values(p.compute_by_family))],
];

function interval(value, band, form) {
  return known(band) ? `${form(value / (1 + band))} to ${form(value * (1 + band))}` : 'no band known';
}

function tiles(run) {
  const r = run.result,
    peak = r.memory.stages[r.memory.peak_stage],
    worst = r.memory.stages.reduce((a, b) => (b.device_B > a.device_B ? b : a), peak);
  const used = worst.device_B / r.memory.capacity_B;
  const tile = (k, v, unit, s, extra) =>
    html(
      'div',
      {class: 'tile'},
      html('div', {class: 'k'}, k),
      html('div', {class: 'v'}, v, unit ? html('small', {}, ` ${unit}`) : null),
      extra || null,
      html('div', {class: 's'}, s),
    );
  const [stepValue, stepUnit] = text.seconds(r.step_time_s).split(' ');
  return html(
    'div',
    {class: 'tiles'},
    tile(
      'Step time',
      stepValue,
      stepUnit,
      `${known(r.error_band) ? `± ${text.percent(r.error_band)}, 90 % band` : 'no error band'}; proven lower ` +
      `bound ${text.seconds(r.bound.step_time_lower_s)}`,
    ),
    tile(
      'Throughput',
      Math.round(r.tokens_per_s_per_gpu).toLocaleString('en-US'),
      'tokens/s/GPU',
      `${interval(r.tokens_per_s_per_gpu, r.error_band, v => Math.round(v).toLocaleString('en-US'))}; ` +
      `${text.count(r.tokens_per_s_per_gpu * run.scenario.gpus)} tokens/s in all`,
    ),
    tile(
      'Model FLOP/s',
      digits(r.tflops_per_gpu),
      'TFLOP/s/GPU',
      `${text.count(r.model_flop_per_token)} FLOP per token, causal attention counted half`,
    ),
    tile(
      'MFU',
      known(r.mfu) ? (100 * r.mfu).toFixed(1) : '–',
      '%',
      `of ${text.flops(run.machine.peak_flops)} dense peak, ${run.scenario.training.precision}${
        r.model_flop_over_run_flop > 1.1
          ? `; counts ${r.model_flop_over_run_flop.toFixed(1)} times the FLOP that run: dense attention, as ` +
            `Megatron-LM counts it`
          : ''
      }`,
    ),
    tile(
      'Memory',
      (worst.device_B / 2 ** 30).toFixed(1),
      'GiB',
      `of ${text.GiB(r.memory.capacity_B)} on stage ${worst.stage}, highest in ${worst.peak_where}; reserve included`,
      html(
        'div',
        {class: used > 1 ? 'meter over' : 'meter', role: 'img', 'aria-label': `${text.percent(used)} of memory`},
        html('i', {style: `width:${Math.min(100 * used, 100)}%`}),
      ),
    ),
  );
}

function settings(run) {
  const s = run.scenario,
    l = s.layout,
    o = s.options,
    p = run.result.layout,
    list = [];
  const add = (k, v) => list.push(html('li', {}, `${k} `, html('b', {}, String(v))));
  for (const key of ['tp', 'cp', 'pp', 'vpp', 'ep', 'etp']) add(key, l[key]);
  add('dp', p.dp);
  add('edp', p.edp);
  add('schedule', l.schedule);
  add('micro-batch', s.training.micro_batch_size);
  add('microbatches', p.microbatches);
  add('global batch', s.training.global_batch_size);
  add('sequence', s.training.seq_length);
  if (run.scenario.layout.ep > 1) add('dispatcher', o.dispatcher);
  const recompute = o.recompute || {};
  if (recompute.granularity && recompute.granularity !== 'none')
    add(
      'recompute',
      recompute.granularity === 'full' ? 'full' : (recompute.modules || []).join(', ') || recompute.granularity,
    );
  if (o.ep_overlap) add('EP overlap', 'on');
  if (o.fsdp && o.fsdp !== 'none') add('fsdp', o.fsdp);
  if ((o.cuda_graph_scope || []).length) add('CUDA graphs', o.cuda_graph_scope.join(', '));
  return html('ul', {class: 'chips', 'aria-label': 'Settings'}, list);
}

/* What limits a prediction stands beside it. */
const caveatOf = result => (result.caveat ? html('p', {class: 'note'}, `Caveat: ${result.caveat}.`) : null);

function drawSummary(run) {
  const node = html('section', {class: 'card', id: 'summary', 'aria-label': 'Summary'}),
    s = run.scenario;
  document.getElementById('main').append(node);
  node.append(
    html('h1', {class: 'title'}, run.name),
    html(
      'p',
      {class: 'lead'},
      `${run.model.name} (${text.count(run.model.parameters)} parameters, ${text.count(run.model.active)} active ` +
      `per token) on ${s.gpus} × ${run.machine.name}. ${
        run.result.bottleneck ? run.result.bottleneck[0].toUpperCase() + run.result.bottleneck.slice(1) + '.' : ''
      }`,
    ),
  );
  if (!run.result.feasible)
    node.append(html('p', {class: 'warn', role: 'alert'}, `Does not fit: ${run.result.why_infeasible}.`));
  if (run.advice.length)
    node.append(
      html('p', {class: 'note', style: 'margin-top:8px'}, 'What to change, one at a time:'),
      adviceList(run.advice.map(said)),
    );
  node.append(tiles(run), caveatOf(run.result) || '', settings(run));
}

/* --- several runs ----------------------------------------------------------------------------------------------- */
/* Keys of a scenario's layout, training, options, GPUs and machine by their paths. */
function scenarioKeys(scenario) {
  const keys = new Map();
  const walk = (path, value) => {
    const inner = value && typeof value === 'object' && !Array.isArray(value) && path !== 'options.recompute';
    if (!inner) keys.set(path, keyWord(value));
    else for (const [key, v] of Object.entries(value)) walk(`${path}.${key}`, v);
  };
  for (const part of ['model', 'hardware', 'gpus', 'training', 'layout', 'options'])
    if (scenario[part] !== undefined) walk(part, scenario[part]);
  return keys;
}

/* What the runs were asked for with different values. */
function drawDiffering(node, runs) {
  const each = runs.map(r => scenarioKeys(r.scenario)),
    paths = [...new Set(each.flatMap(keys => [...keys.keys()]))],
    word = (keys, path) => (keys.has(path) && keys.get(path) !== 'null' ? keys.get(path) : '–'),
    differ = paths.filter(path => new Set(each.map(keys => word(keys, path))).size > 1);
  if (differ.length)
    node.append(
      html('h3', {}, 'What differs in them'),
      table(
        ['key', ...runs.map(r => r.name)],
        differ.map(path => [path, ...each.map(keys => word(keys, path))]),
        [0, ...runs.map((_, i) => i + 1)],
      ),
    );
}

function drawCompare(runs, chosen) {
  if (runs.length < 2) return;
  const node = section(
      'compare',
      'Side by side',
      `Every run of this page against ${runs[chosen].name}. Red is worse, green better; parts are means over the ` +
      `stages of a run.`,
    ),
    base = runs[chosen].result;
  const rows = [
    ['step time', r => r.step_time_s, text.seconds, 1],
    ['tokens/s/GPU', r => r.tokens_per_s_per_gpu, v => Math.round(v).toLocaleString('en-US'), -1],
    ['MFU', r => r.mfu, text.percent, -1],
    ['memory, worst stage', r => Math.max(...r.memory.stages.map(m => m.device_B)), text.GiB, 1],
    ...PARTS.map(([name, , of]) => [name, r => of(r.time), text.seconds, 1]),
  ];
  const cell = (value, was, form, sign, self) => {
    const change = was > 0 ? value / was - 1 : NaN,
      matters = !self && known(change) && Math.abs(change) >= 0.0005;
    return html(
      'td',
      {class: matters ? (change * sign > 0 ? 'up' : 'down') : undefined},
      form(value),
      matters ? ` (${text.signed(change)})` : '',
    );
  };
  const bars = runs.map(r => [r.name, r.result.time, r.result.step_time_s]),
    shown = partsOf(bars, base.step_time_s * 5e-5);
  node.append(partLegend(shown));
  partBars(node, bars, shown, i => i === chosen, 'Time parts of every run');
  node.append(
    table(
      ['figure', ...runs.map(r => r.name)],
      rows
        .filter(([, of]) => runs.some(r => of(r.result) > 5e-5 * r.result.step_time_s))
        .map(([name, of, form, sign]) => [
          name,
          ...runs.map((r, i) => cell(of(r.result), of(base), form, sign, i === chosen)),
        ]),
    ),
  );
  drawDiffering(node, runs);
}

/* --- where the step goes ---------------------------------------------------------------------------------------- */
const partsOf = (rows, least) => PARTS.filter(([, , of]) => rows.some(([, t]) => of(t) > least));
const partLegend = shown => legend(shown.map(([name, c]) => [`var(--${c})`, name]));

/* A bar for each row [name, time, step_s], split into parts, all on one scale; `strong` says which names stand out. */
function partBars(node, rows, shown, strong, label) {
  plot(
    node,
    (at, width) => {
      const left = Math.min(Math.max(...rows.map(r => r[0].length)) * 7.2 + 14, width / 3),
        fits = Math.floor((left - 8) / 7),
        h = rows.length > 20 ? 14 : 20,
        gap = 4,
        height = rows.length * (h + gap) + 30,
        inner = width - left - 8;
      const longest = Math.max(...rows.map(([, t, step]) => Math.max(step, sum(PARTS.map(p => Math.max(p[2](t), 0)))))),
        x = v => left + (v / longest) * inner;
      const picture = frame(width, height);
      for (const [t, word] of timeTicks(0, longest, inner / 100)) {
        picture.append(
          svg('line', {class: 'grid', x1: x(t), x2: x(t), y1: 0, y2: height - 22}),
          svg(
            'text',
            {
              class: 'soft',
              x: Math.min(x(t), width - 4),
              y: height - 6,
              'text-anchor': t === 0 ? 'start' : x(t) > width - 30 ? 'end' : 'middle',
            },
            word,
          ),
        );
      }
      rows.forEach(([name, t, step], i) => {
        const y = i * (h + gap),
          short = name.length > fits ? `${name.slice(0, fits - 1)}…` : name;
        picture.append(svg('text', {class: strong(i) ? 'strong' : 'soft', x: 0, y: y + h / 2 + 4}, short));
        let from = 0;
        for (const [part, c, of] of shown) {
          const seconds = of(t);
          if (!(seconds > 0)) continue;
          const classes =
            part === 'exposed communication'
              ? Object.entries(t.comm)
                  .filter(([, v]) => v.exposed_s > 0)
                  .map(([k, v]) => [k, text.seconds(v.exposed_s)])
              : [];
          const rect = svg('rect', {
            x: x(from),
            y,
            width: Math.max((seconds / longest) * inner - 0.7, 0.3),
            height: h,
            style: `fill:var(--${c})`,
          });
          picture.append(
            strong(i) || rows.length <= 20
              ? marked(rect, () => ({
                  title: `${part}, ${name}`,
                  rows: [
                    ['time', text.seconds(seconds)],
                    ['of the step', text.percent(seconds / step)],
                    ...classes,
                  ],
                }))
              : rect,
          );
          from += seconds;
        }
      });
      at.append(picture);
    },
    label,
  );
}

function drawParts(run) {
  const node = section(
    'parts',
    'Where the step goes',
    'Each bar is one step of one pipeline stage, split by what its compute stream does or waits for. The parts of ' +
    'a bar add up to the step.',
  );
  const r = run.result,
    rows = [r.time, ...r.stage_time].map((t, i) => [i ? `stage ${i - 1}` : 'mean', t, r.step_time_s]),
    shown = partsOf(rows, r.step_time_s * 5e-5),
    every = rows.length > 40 ? Math.ceil(rows.length / 33) : 1;
  node.append(partLegend(shown));
  partBars(node, rows.filter((_, i) => i === 0 || (i - 1) % every === 0), shown, i => i === 0,
    'Time parts of every stage');
  node.append(
    folded('as a table', () =>
      table(
        ['stage', ...shown.map(p => p[0]), 'sum'],
        rows.map(([name, t]) => [
          name,
          ...shown.map(p => text.seconds(p[2](t))),
          text.seconds(sum(PARTS.map(p => p[2](t)))),
        ]),
      ),
    ),
  );
}

/* --- from peak to MFU ------------------------------------------------------------------------------------------- */
function gapColour(name) {
  if (name.startsWith('model FLOP')) return 'good';
  if (name === 'kernels: GEMM') return 'gemm';
  if (name.startsWith('kernels: grouped')) return 'grouped';
  if (name.startsWith('kernels: attention')) return 'attention';
  if (name.startsWith('memory-bound') || name === 'quantisation') return 'memory';
  if (name.startsWith('exposed') || name.startsWith('slowed')) return 'comm';
  if (name === 'pipeline bubble' || name === 'uneven stages') return 'buffers';
  if (name === 'host') return 'host';
  if (name === 'optimizer') return 'optimizer';
  return 'other';
}
function points(g, last) {
  /* losses with a minus sign; two decimals where one would print zero */
  const size = Math.abs(g.mfu_points),
    figure = size.toFixed(size < 0.095 ? 2 : 1);
  return last ? figure : `${g.mfu_points < 0 ? '+' : '−'}${figure}`;
}
function drawWaterfall(run) {
  const gap = (run.result.gap || []).filter((g, i) => i === 0 || Math.abs(g.mfu_points) >= 0.005);
  if (!gap.length) return;
  const node = section(
    'mfu',
    'From peak to MFU',
    'What keeps the step from being all model FLOP at the machine’s dense peak, in points of MFU; the parts add ' +
    'up to 100. “kernels” is what a kernel takes beyond its FLOP at peak.',
  );
  plot(
    node,
    (at, width) => {
      const narrow = width < 560,
        left = narrow ? 8 : 236,
        row = narrow ? 36 : 23,
        height = gap.length * row + 30,
        inner = width - left - 56;
      const lowest = Math.min(0, ...gap.map((_, i) => 100 - sum(gap.slice(1, i + 1).map(g => g.mfu_points)))),
        x = v => left + ((v - lowest) / (100 - lowest)) * inner;
      const picture = frame(width, height);
      for (const v of [0, 20, 40, 60, 80, 100]) {
        picture.append(
          ...uprightLine(x(v), 0, height - 22, height - 6, `${v}`),
        );
      }
      let level = 100; /* the losses come down from 100 to the MFU, which stands last, from 0 */
      [...gap.slice(1), gap[0]].forEach((g, i) => {
        const last = i === gap.length - 1,
          from = last ? 0 : level - g.mfu_points,
          to = last ? g.mfu_points : level,
          y = i * row + (narrow ? 17 : 3);
        const label = last ? 'MFU: model FLOP at peak' : g.part,
          lo = Math.min(from, to),
          hi = Math.max(from, to);
        picture.append(
          svg(
            'text',
            narrow
              ? {class: last ? 'strong' : 'soft', x: left, y: y - 4}
              : {class: last ? 'strong' : undefined, x: left - 10, y: y + 12, 'text-anchor': 'end'},
            label,
          ),
        );
        picture.append(
          marked(
            svg('rect', {
              x: x(lo),
              y,
              width: Math.max(x(hi) - x(lo), 1.5),
              height: 16,
              rx: 1.5,
              style: `fill:var(--${gapColour(g.part)})`,
            }),
            () => ({
              title: label,
              rows: [
                ['points of MFU', g.mfu_points.toFixed(2)],
                ['time per step', text.seconds(g.fraction_of_step * run.result.step_time_s)],
              ],
            }),
          ),
        );
        picture.append(svg('text', {class: last ? 'strong' : 'soft', x: x(hi) + 6, y: y + 12}, points(g, last)));
        if (!last) {
          level -= g.mfu_points;
          picture.append(
            svg('line', {
              x1: x(level),
              x2: x(level),
              y1: y + 16,
              y2: y + row,
              style: 'stroke:var(--soft);stroke-dasharray:2 2',
            }),
          );
        }
      });
      at.append(picture);
    },
    'MFU waterfall',
  );
}
