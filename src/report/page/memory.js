/* memory.js - allocated bytes over the step, and what the peak is made of. */

const MEMORY_PARTS = [
  ['parameters', 'parameters', 'parameters_B'],
  ['gradients', 'gradients', 'gradients_B'],
  ['optimizer states', 'states', 'optimizer_B'],
  ['buffers', 'buffers', 'buffers_B'],
  ['kept activations', 'activations', 'activations_B'],
  ['transients', 'transient', 'transient_B'],
  ['reserve outside the allocator', 'reserved', 'reserved_B'],
];

function memoryOverTime(node, run, state) {
  const lines = run.memory_timeline,
    capacity = run.result.memory.capacity_B / 2 ** 30,
    stages = run.result.memory.stages;
  node.append(
    html('h3', {}, 'Over the step'),
    html(
      'p',
      {class: 'note'},
      'Allocated bytes after every pass; the dashed line is the device, the tick at the end of a line the highest ' +
      'moment inside a pass.',
    ),
  );
  plot(
    node,
    (at, width) => {
      const left = 44,
        right = 66,
        height = 260,
        bottom = 26,
        inner = width - left - right,
        top = Math.max(capacity, ...stages.map(s => s.peak_B / 2 ** 30)) * 1.04;
      const x = us => left + (us / 1e6 / run.makespan_s) * inner,
        y = GiB => 6 + (1 - GiB / top) * (height - bottom - 6);
      const picture = frame(width, height);
      for (const g of ticks(0, top, 5))
        picture.append(...levelLine(left, left + inner, y(g), `${digits(g)}${g ? '' : ' GiB'}`));
      for (const [t, label] of timeTicks(0, run.makespan_s, inner / 110))
        picture.append(
          svg(
            'text',
            {class: 'soft', x: x(t * 1e6), y: height - 6, 'text-anchor': t === 0 ? 'start' : 'middle'},
            label,
          ),
        );
      picture.append(
        svg('line', {
          x1: left,
          x2: left + inner,
          y1: y(capacity),
          y2: y(capacity),
          style: 'stroke:var(--bad);stroke-dasharray:6 4',
        }),
        svg('text', {x: left + 4, y: y(capacity) - 5, class: 'soft'}, `device ${capacity.toFixed(0)} GiB`),
      );
      lines.forEach((line, i) => {
        let d = '';
        for (let k = 0; k < line.points.length; k += 2)
          d += k
            ? `H${x(line.points[k]).toFixed(1)}V${y(line.points[k + 1] / 1024).toFixed(1)}`
            : `M${x(line.points[0]).toFixed(1)} ${y(line.points[1] / 1024).toFixed(1)}`;
        const peak = stages[line.stage],
          chosen = line.stage === state.stage;
        picture.append(
          marked(
            svg('path', {
              d,
              fill: 'none',
              'data-stage': line.stage,
              style:
                `stroke:${lineOf(i, lines.length)};` +
                `stroke-width:${chosen ? 2.6 : 1.2};opacity:${chosen ? 1 : 0.75}`,
            }),
            () => ({
              title: `stage ${line.stage}`,
              rows: [
                ['peak, allocated', text.GiB(peak.peak_B)],
                ['with reserve', text.GiB(peak.device_B)],
                ['between steps', text.GiB(peak.between_steps_B)],
                ['peak in', peak.peak_where],
              ],
            }),
          ),
        );
        const end = y(peak.peak_B / 2 ** 30);
        picture.append(
          svg('line', {
            x1: left + inner,
            x2: left + inner + 6,
            y1: end,
            y2: end,
            style: `stroke:${lineOf(i, lines.length)};stroke-width:2`,
          }),
        );
        if (chosen)
          picture.append(svg('text', {class: 'strong', x: left + inner + 9, y: end + 4}, `stage ${line.stage}`));
      });
      at.append(picture);
    },
    'Memory over time',
  );
}

function memoryParts(node, run) {
  const memory = run.result.memory,
    every = Math.ceil(memory.stages.length / 32),
    stages = memory.stages.filter((s, i) => i % every === 0 || s.stage === memory.peak_stage);
  node.append(html('h3', {}, 'The peak taken apart'), legend(MEMORY_PARTS.map(([name, c]) => [`var(--${c})`, name])));
  plot(
    node,
    (at, width) => {
      const left = 62,
        h = stages.length > 20 ? 13 : 18,
        gap = 4,
        height = stages.length * (h + gap) + 28,
        top = Math.max(memory.capacity_B, ...stages.map(s => s.device_B)) * 1.01,
        inner = width - left - 8;
      const x = B => left + (B / top) * inner,
        picture = frame(width, height);
      for (const g of ticks(0, top / 2 ** 30, inner / 90))
        picture.append(
          ...uprightLine(
            x(g * 2 ** 30),
            0,
            height - 22,
            height - 6,
            `${digits(g)}${g ? '' : ' GiB'}`,
            g ? 'middle' : 'start',
          ),
        );
      stages.forEach((s, i) => {
        const y = i * (h + gap);
        let from = 0;
        picture.append(
          svg(
            'text',
            {class: s.stage === memory.peak_stage ? 'strong' : 'soft', x: 0, y: y + h / 2 + 4},
            `stage ${s.stage}`,
          ),
        );
        for (const [name, c, key] of MEMORY_PARTS) {
          const B = s[key];
          if (!(B > 0)) continue;
          const rect = svg('rect', {
            x: x(from),
            y,
            width: Math.max((B / top) * inner - 0.6, 0.3),
            height: h,
            style: `fill:var(--${c})`,
          });
          picture.append(
            stages.length <= 20
              ? marked(rect, () => ({
                  title: `${name}, stage ${s.stage}`,
                  rows: [
                    ['bytes', text.GiB(B)],
                    ['of the device', text.percent(B / memory.capacity_B)],
                    ['peak in', s.peak_where],
                  ],
                }))
              : rect,
          );
          from += B;
        }
      });
      picture.append(
        svg('line', {
          x1: x(memory.capacity_B),
          x2: x(memory.capacity_B),
          y1: 0,
          y2: height - 22,
          style: 'stroke:var(--bad);stroke-width:1.5;stroke-dasharray:6 4',
        }),
      );
      at.append(picture);
    },
    'Parts of the peak',
  );
}

function keptTensors(node, run, state) {
  const of = run.kept.find(k => k.stage === state.stage) || run.kept[run.result.memory.peak_stage],
    most = 12;
  if (!of || !of.tensors.length) return;
  const all = sum(of.tensors.map(t => t.bytes_B)),
    rest = of.tensors.slice(most);
  const rows = of.tensors.slice(0, most).map(t => [`${t.name}, ${t.module}`, t.bytes_B]);
  if (rest.length) rows.push([`${rest.length} more`, sum(rest.map(t => t.bytes_B))]);
  node.append(
    html('h3', {}, `Kept for backward on stage ${of.stage}`),
    html(
      'p',
      {class: 'note'},
      `Tensors of the ${of.live_forwards} forwards that live when the pass of the peak begins, ${text.GiB(all)} ` +
      `together.`,
    ),
  );
  node.append(
    table(
      ['tensor, module', 'bytes', 'share'],
      rows.map(([n, b]) => [n, text.GiB(b), text.percent(b / all)]),
      [0],
    ),
  );
}

function drawMemory(run, state) {
  const node = section('memory', 'Memory', null),
    stages = run.result.memory.stages;
  if (!run.memory_timeline) {
    memoryParts(node, run);
    return;
  }
  const body = html('div', {});
  state.memoryStage = run.result.memory.peak_stage;
  const local = {stage: state.memoryStage},
    kept = html('div', {});
  node.append(
    controls(
      choice(
        'Stage',
        stages.map(s => [s.stage, `${s.stage}${s.stage === run.result.memory.peak_stage ? ' (highest)' : ''}`]),
        local.stage,
        v => {
          local.stage = Number(v);
          redraw();
          kept.replaceChildren();
          keptTensors(kept, run, local);
        },
      ),
    ),
    body,
  );
  memoryOverTime(body, run, local);
  const split = html('div', {class: 'split'}),
    a = html('div', {}),
    b = kept;
  split.append(a, b);
  body.append(split);
  memoryParts(a, run);
  keptTensors(b, run, local);
}
