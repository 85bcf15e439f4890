/* roofline.js - operators against the roofs of the machine. */

const FAMILY = {
  GEMM: ['gemm', 'circle'],
  'grouped GEMM': ['grouped', 'square'],
  attention: ['attention', 'triangle'],
  'memory-bound': ['memory', 'diamond'],
};
function shape(kind, x, y, r, attributes) {
  /* a family has a shape of its own, not only a colour */
  if (kind === 'circle') return svg('circle', {cx: x, cy: y, r, ...attributes});
  const points =
    kind === 'square'
      ? [
          [-0.9, -0.9],
          [0.9, -0.9],
          [0.9, 0.9],
          [-0.9, 0.9],
        ]
      : kind === 'triangle'
        ? [
            [0, -1.2],
            [1.1, 0.8],
            [-1.1, 0.8],
          ]
        : [
            [0, -1.25],
            [1.25, 0],
            [0, 1.25],
            [-1.25, 0],
          ];
  return svg('polygon', {
    points: points.map(([a, b]) => `${(x + a * r).toFixed(1)},${(y + b * r).toFixed(1)}`).join(' '),
    ...attributes,
  });
}
const operatorTip = (o, run) => ({
  title: `${o.name}, ${o.pass}`,
  rows: [
    ['operator', `${o.op}, ${o.dtype}`],
    ['one call', text.seconds(o.mean_s)],
    o.flop > 0 ? ['achieved', text.flops(o.flop / o.mean_s)] : null,
    ['HBM traffic', text.rate(o.bytes_B / o.mean_s)],
    o.flop > 0 ? ['intensity', `${digits(o.flop / o.bytes_B)} FLOP/B`] : null,
    ['calls per step', digits(o.calls)],
    ['time per step', `${text.seconds(o.time_s)} (${text.percent(o.time_s / run.result.step_time_s)})`],
  ],
});

function drawRoofline(run) {
  const all = run.operators || [],
    ops = all.filter(o => o.flop > 0 && o.bytes_B > 0 && o.mean_s > 0 && o.family !== 'memory-bound'),
    hbm = run.machine.hbm_Bps;
  if (!ops.length || !known(hbm)) return;
  const node = section(
    'operators',
    'Operators',
    'Every matrix operator of the step against the roofs of the machine: how high a point lies below the roof is ' +
    'what its kernel leaves. The area is its share of the step; rates are those simulated, with what runs beside it.',
  );
  node.append(
    legend(
      [...new Set(ops.map(o => o.family))].map(f => [
        fill(svg('svg', {width: 14, height: 14}), {}, [
          shape(FAMILY[f][1], 7, 7, 5, {style: `fill:var(--${FAMILY[f][0]})`}),
        ]),
        f,
      ]),
    ),
  );
  plot(
    node,
    (at, width) => {
      const left = 62,
        height = 340,
        bottom = 38,
        inner = width - left - 14,
        roofs = run.roofs.filter(r => known(r.peak_flops));
      const xs = ops.map(o => o.flop / o.bytes_B),
        ys = ops.map(o => o.flop / o.mean_s),
        xlo = 10 ** Math.floor(Math.log10(Math.min(...xs) / 1.5)),
        xhi = 10 ** Math.ceil(Math.log10(Math.max(...xs) * 1.5));
      const yhi = Math.max(...roofs.map(r => r.peak_flops)) * 1.7,
        ylo = Math.min(...ys) / 2;
      const x = v => left + (Math.log(v / xlo) / Math.log(xhi / xlo)) * inner,
        y = v => 8 + (1 - Math.log(v / ylo) / Math.log(yhi / ylo)) * (height - bottom - 8);
      const picture = frame(width, height);
      for (const v of logTicks(xlo, xhi))
        picture.append(
          ...uprightLine(x(v), 8, height - bottom, height - bottom + 16, v >= 1e4 ? text.count(v) : `${v}`),
        );
      for (const v of logTicks(ylo, yhi))
        picture.append(...levelLine(left, left + inner, y(v), text.flops(v).replace('FLOP/s', '')));
      picture.append(
        svg(
          'text',
          {class: 'soft', x: left + inner / 2, y: height - 6, 'text-anchor': 'middle'},
          'FLOP per byte of HBM traffic',
        ),
        svg('text', {class: 'soft', x: 2, y: height - bottom + 16}, 'FLOP/s'),
      );
      for (const r of roofs) {
        const ridge = r.peak_flops / hbm,
          from = Math.max(ridge, xlo);
        picture.append(
          svg('line', {
            x1: x(from),
            x2: left + inner,
            y1: y(r.peak_flops),
            y2: y(r.peak_flops),
            style: 'stroke:var(--ink);stroke-width:1.4',
          }),
          svg(
            'text',
            {x: left + inner - 2, y: y(r.peak_flops) - 5, 'text-anchor': 'end'},
            `${r.dtype} ${text.flops(r.peak_flops)}`,
          ),
        );
      }
      const highest = Math.max(...roofs.map(r => r.peak_flops)),
        start = Math.max(xlo, ylo / hbm);
      picture.append(
        svg('line', {
          x1: x(start),
          y1: y(start * hbm),
          x2: x(Math.min(highest / hbm, xhi)),
          y2: y(Math.min(highest, xhi * hbm)),
          style: 'stroke:var(--ink);stroke-width:1.4;stroke-dasharray:5 3',
        }),
        svg('text', {x: x(start) + 14, y: y(start * hbm) + 4}, `HBM ${text.rate(hbm)}`),
      );
      const largest = Math.max(...ops.map(o => o.time_s));
      for (const o of [...ops].sort((a, b) => b.time_s - a.time_s)) {
        const [c, kind] = FAMILY[o.family];
        picture.append(
          marked(
            shape(kind, x(o.flop / o.bytes_B), y(o.flop / o.mean_s), 2.5 + 12 * Math.sqrt(o.time_s / largest), {
              style: `fill:var(--${c});fill-opacity:.72;stroke:var(--card)`,
            }),
            () => operatorTip(o, run),
          ),
        );
      }
      at.append(picture);
    },
    'Roofline',
  );
  const slow = all.filter(o => o.family === 'memory-bound' && o.bytes_B > 0 && o.time_s > 0).slice(0, 10);
  if (slow.length) {
    node.append(
      html('h3', {}, 'Memory-bound operators'),
      html(
        'p',
        {class: 'note'},
        `Achieved share of the HBM rate (${text.rate(hbm)}), by time per step; short kernels are bound by their ` +
        `launch instead.`,
      ),
    );
    plot(
      node,
      (at, width) => {
        const narrow = width < 560,
          left = narrow ? 0 : 220,
          row = narrow ? 38 : 24,
          height = slow.length * row + 4,
          inner = width - left - 130,
          picture = frame(width, height);
        slow.forEach((o, i) => {
          const y = i * row + (narrow ? 16 : 2),
            share = Math.min(o.bytes_B / o.mean_s / hbm, 1);
          picture.append(
            svg(
              'text',
              narrow ? {x: 0, y: y - 3} : {x: left - 10, y: y + 13, 'text-anchor': 'end'},
              `${o.name}, ${o.pass}`,
            ),
            svg('rect', {x: left, y, width: inner, height: 17, rx: 2, style: 'fill:var(--grid)'}),
            marked(
              svg('rect', {
                x: left,
                y,
                width: Math.max(share * inner, 1),
                height: 17,
                rx: 2,
                style: 'fill:var(--memory)',
              }),
              () => operatorTip(o, run),
            ),
            svg(
              'text',
              {class: 'soft', x: left + inner + 8, y: y + 13},
              `${(100 * share).toFixed(0)} %, ${text.seconds(o.time_s)}`,
            ),
          );
        });
        at.append(picture);
      },
      'Memory-bound operators',
    );
  }
  node.append(
    folded('all operators as a table', () =>
      table(
        ['operator', 'pass', 'type', 'calls', 'one call', 'per step', 'FLOP', 'bytes', 'FLOP/s'],
        all.map(o => [
          o.name,
          o.pass,
          o.dtype,
          digits(o.calls),
          text.seconds(o.mean_s),
          text.seconds(o.time_s),
          o.flop > 0 ? text.count(o.flop) : '',
          text.bytes(o.bytes_B),
          o.flop > 0 ? text.flops(o.flop / o.mean_s) : '',
        ]),
        [0],
      ),
    ),
  );
}
