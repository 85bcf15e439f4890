/* curves.js - what-if studies, predictions against measured runs, and where the numbers come from. */

/* --- what-if: throughput along the last axis, a line for each combination of the others; parts of every point */
const DASHES = ['none', '6 3', '2 3', '8 3 2 3'];

function whatifCurves(node, study, along, lines) {
  plot(
    node,
    (at, width) => {
      const left = 58,
        height = 230,
        bottom = 40,
        right = 14,
        inner = width - left - right,
        values = study.points.filter(p => p.runs).map(p => p.tokens_per_s_per_gpu),
        top = Math.max(...values, study.base.runs ? study.base.tokens_per_s_per_gpu : 0) * 1.08;
      const x = i => left + (along.length > 1 ? (i / (along.length - 1)) * (inner - 40) + 20 : inner / 2),
        y = v => 8 + (1 - v / top) * (height - bottom - 8);
      const picture = frame(width, height);
      for (const v of ticks(0, top, 4))
        picture.append(...levelLine(left, left + inner, y(v), v.toLocaleString('en-US')));
      const every = Math.max(1, Math.ceil((along.length * 58) / inner));
      along.forEach((label, i) => {
        if (i % every === 0)
          picture.append(
            svg('text', {class: 'soft', x: x(i), y: height - bottom + 16, 'text-anchor': 'middle'}, label),
          );
      });
      picture.append(
        svg(
          'text',
          {class: 'soft', x: left + inner / 2, y: height - 6, 'text-anchor': 'middle'},
          `${study.axes.length ? study.axes[study.axes.length - 1].name : ''}  (up: tokens/s/GPU)`,
        ),
      );
      if (study.base.runs)
        picture.append(
          svg('line', {
            x1: left,
            x2: left + inner,
            y1: y(study.base.tokens_per_s_per_gpu),
            y2: y(study.base.tokens_per_s_per_gpu),
            style: 'stroke:var(--soft);stroke-dasharray:4 4',
          }),
          svg('text', {class: 'soft', x: left + 4, y: y(study.base.tokens_per_s_per_gpu) - 5}, 'base'),
        );
      lines.forEach((line, k) => {
        const shade = lineOf(k, lines.length),
          d = line.points
            .map((p, i) =>
              p.runs
                ? `${i && line.points[i - 1].runs ? 'L' : 'M'}${x(i).toFixed(1)} ` +
                  `${y(p.tokens_per_s_per_gpu).toFixed(1)}`
                : '',
            )
            .join('');
        picture.append(
          svg('path', {
            d,
            fill: 'none',
            style: `stroke:${shade};stroke-width:2;stroke-dasharray:${DASHES[k % DASHES.length]}`,
          }),
        );
        line.points.forEach(
          (p, i) =>
            p.runs &&
            picture.append(
              marked(
                svg('circle', {
                  cx: x(i),
                  cy: y(p.tokens_per_s_per_gpu),
                  r: 4.5,
                  style:
                    `fill:${p.fits ? shade : 'var(--card)'};` +
                    `stroke:var(--${p.fits ? 'card' : 'bad'});stroke-width:1.5`,
                }),
                () => ({
                  title: p.label,
                  rows: [
                    ['tokens/s/GPU', Math.round(p.tokens_per_s_per_gpu).toLocaleString('en-US')],
                    study.base.runs
                      ? ['against the base', text.signed(p.tokens_per_s_per_gpu / study.base.tokens_per_s_per_gpu - 1)]
                      : null,
                    ['MFU', text.percent(p.mfu)],
                    ['memory', text.GiB(p.device_B)],
                    p.fits ? null : ['does not fit', p.why || ''],
                  ],
                }),
              ),
            ),
        );
      });
      at.append(picture);
    },
    `What-if curves, ${study.name}`,
  );
  if (lines.length > 1) node.append(legend(lines.map((l, k) => [lineOf(k, lines.length), l.label])));
}

function whatifParts(node, study) {
  const rows = [study.base, ...study.points].filter(p => p.runs),
    words = Object.keys(study.base.runs ? study.base.parts_s : (rows[0] || {parts_s: {}}).parts_s).filter(w =>
      rows.some(p => p.parts_s[w] > 1e-4 * p.value_s),
    );
  node.append(
    folded('the parts of every point', () =>
      table(
        [
          'point',
          ...words.map(w => w.replace(/_/g, ' ')),
          study.per === 'token' ? 'GPU time per token' : 'step',
          'note',
        ],
        [study.base, ...study.points].map(p =>
          p.runs
            ? [
                p.label,
                ...words.map(w => html('td', {}, text.seconds(p.parts_s[w]))),
                text.seconds(p.value_s),
                p.why || '',
              ]
            : [p.label, ...words.map(() => ''), '', p.why || ''],
        ),
        [0],
      ),
    ),
  );
}

function drawStudies(studies) {
  if (!studies.length) return;
  const node = section(
    'whatif',
    'What if',
    'Throughput when one thing after another is changed; every point is a simulation of its own. Hollow points do ' +
    'not fit into memory, gaps cannot run.',
  );
  for (const study of studies) {
    const last = study.axes[study.axes.length - 1],
      size = study.crossed && last ? last.labels.length : study.points.length,
      along = study.crossed && last ? last.labels : study.points.map(p => p.label),
      lines = [];
    for (let i = 0; i < study.points.length; i += size) {
      const points = study.points.slice(i, i + size);
      lines.push({points, label: points[0].label.split(', ').slice(0, -1).join(', ')});
    }
    node.append(html('h3', {}, study.name), study.doc ? html('p', {class: 'note'}, study.doc) : '');
    whatifCurves(node, study, along, lines);
    whatifParts(node, study);
  }
}

/* --- measured runs ---------------------------------------------------------------------------------------------- */

function drawValidation(validation, run) {
  if (!validation || !validation.rows.length) return;
  const node = section(
    'validation',
    'Predicted against measured',
    `${validation.where}: ${validation.n} step times, median error ${text.percent(validation.median_ape)}, 90 % ` +
    `within ${text.percent(validation.p90_ape)}, mean signed error ${text.signed(
      validation.bias,
    )}; ${text.percent(validation.inside_band)} of them lie in their band.`,
  );
  const models = [...new Set(validation.rows.map(r => r.model))].sort();
  plot(
    node,
    (at, width) => {
      const left = 74,
        side = Math.min(width - left - 12, 460),
        bottom = 40,
        height = side + bottom + 8,
        all = validation.rows.flatMap(r => [r.measured_s, r.predicted_s]),
        lo = Math.min(...all) / 1.3,
        hi = Math.max(...all) * 1.3;
      const s = v => Math.log(v / lo) / Math.log(hi / lo),
        x = v => left + s(v) * side,
        y = v => 8 + (1 - s(v)) * side;
      const picture = frame(left + side + 12, height);
      for (const v of logTicks(lo, hi))
        picture.append(
          ...uprightLine(x(v), 8, 8 + side, 8 + side + 16, text.seconds(v)),
          ...levelLine(left, left + side, y(v), text.seconds(v)),
        );
      const line = (factor, dash) =>
        svg('line', {
          x1: x(Math.max(lo, lo / factor)),
          y1: y(Math.max(lo, lo * factor)),
          x2: x(Math.min(hi, hi / factor)),
          y2: y(Math.min(hi, hi * factor)),
          style: `stroke:var(--soft);stroke-dasharray:${dash}`,
        });
      picture.append(line(1, 'none'), line(1.1, '3 3'), line(1 / 1.1, '3 3'));
      for (const r of validation.rows) {
        const self = run && r.model === run.model.name && r.gpu === run.machine.name;
        picture.append(
          marked(
            svg('circle', {
              cx: x(r.measured_s),
              cy: y(r.predicted_s),
              r: self ? 5.5 : 4,
              style:
                `fill:${rampOf(models.indexOf(r.model), models.length)};fill-opacity:.85;` +
                `stroke:var(--ink);stroke-width:${self ? 1.6 : 0.4}`,
            }),
            () => ({
              title: r.name,
              rows: [
                ['measured', text.seconds(r.measured_s)],
                ['predicted', text.seconds(r.predicted_s)],
                ['error', text.signed(r.predicted_s / r.measured_s - 1)],
                ['band', `± ${text.percent(r.band)}`],
                ['model', r.model],
                ['GPU', r.gpu],
              ],
            }),
          ),
        );
      }
      picture.append(
        svg('text', {class: 'soft', x: left + side / 2, y: height - 6, 'text-anchor': 'middle'}, 'measured step time'),
        svg(
          'text',
          {class: 'soft', 'text-anchor': 'middle', transform: `translate(12 ${8 + side / 2}) rotate(-90)`},
          'predicted step time',
        ),
      );
      at.append(picture);
    },
    'Validation scatter',
  );
  node.append(
    legend(models.map((m, i) => [rampOf(i, models.length), m])),
    html('p', {class: 'note'}, 'Dashed: 10 % off. A heavy outline marks runs of this page’s model and GPU.'),
    folded('as a table', () =>
      table(
        ['run', 'measured', 'predicted', 'error', 'band'],
        validation.rows.map(r => [
          r.name,
          text.seconds(r.measured_s),
          text.seconds(r.predicted_s),
          text.signed(r.predicted_s / r.measured_s - 1),
          `± ${text.percent(r.band)}`,
        ]),
      ),
    ),
  );
}

function drawSources(run) {
  const node = section(
    'sources',
    'Sources',
    `Which measured curve or data-sheet figure decided how much time, on the stage that computes longest. ` +
    `Residuals are those of the fit on points held back, 90th percentile. ${
      known(run.band.total)
        ? `The band of ± ${text.percent(run.band.total)} combines ± ${text.percent(run.band.curves)} of these ` +
          `curves with what site, release, host and bubbles add.`
        : ''
    }`,
  );
  const origins = run.result.origins || [],
    all = sum(origins.map(o => o.time_s)),
    most = 14;
  const row = o => [
    o.op,
    text.seconds(o.time_s),
    text.percent(o.time_s / all),
    known(o.residual_p90) ? `± ${text.percent(o.residual_p90)}` : 'not known',
    o.data || 'data sheet',
  ];
  const head = ['operator', 'time', 'share', 'residual', 'fitted to'];
  node.append(table(head, origins.slice(0, most).map(row), [4]));
  if (origins.length > most)
    node.append(folded(`${origins.length - most} more`, () => table(head, origins.slice(most).map(row), [4])));
  node.append(
    html(
      'p',
      {class: 'note', style: 'margin-top:10px'},
      `Simulated: ${run.result.fidelity} fidelity, ${run.result.events.toLocaleString('en-US')} events. `,
    ),
    controls(
      button('Download the scenario', 'Download the scenario', () => saveScenario(run.scenario)),
      button('Download the result', 'Download the result', () =>
        save(`${run.name}.result.json`, JSON.stringify(run.result, null, 2)),
      ),
    ),
  );
}
const saveScenario = s => save(`${s.name}.json`, JSON.stringify(s, null, 2));
function save(name, content) {
  const link = html('a', {
    href: URL.createObjectURL(new Blob([content], {type: 'application/json'})),
    download: name.replace(/[^\w.\-]+/g, '-'),
  });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
