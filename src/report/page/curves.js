/* curves.js - predictions against measured runs, and where the numbers come from. */

function drawValidation(validation, run) {
  if (!validation || !validation.rows.length) return;
  const node = section('validation', 'Predicted against measured', `${validation.where}: ${validation.n} step times, median error ${text.percent(validation.median_ape)}, 90 % within ${text.percent(validation.p90_ape)}, mean signed error ${
    text.signed(validation.bias)}; ${text.percent(validation.inside_band)} of them lie in their band.`);
  const models = [...new Set(validation.rows.map(r => r.model))].sort();
  plot(node, (at, width) => {
    const left = 58, side = Math.min(width - left - 12, 460), bottom = 40, height = side + bottom + 8, all = validation.rows.flatMap(r => [r.measured_s, r.predicted_s]), lo = Math.min(...all) / 1.3, hi = Math.max(...all) * 1.3;
    const s = v => Math.log(v / lo) / Math.log(hi / lo), x = v => left + s(v) * side, y = v => 8 + (1 - s(v)) * side;
    const picture = svg('svg', {width: left + side + 12, height, viewBox: `0 0 ${left + side + 12} ${height}`});
    for (const v of decades(lo, hi)) picture.append(svg('line', {class: 'grid', x1: x(v), x2: x(v), y1: 8, y2: 8 + side}), svg('line', {class: 'grid', x1: left, x2: left + side, y1: y(v), y2: y(v)}),
      svg('text', {class: 'soft', x: x(v), y: 8 + side + 16, 'text-anchor': 'middle'}, text.seconds(v)), svg('text', {class: 'soft', x: left - 6, y: y(v) + 4, 'text-anchor': 'end'}, text.seconds(v)));
    const line = (factor, dash) => svg('line', {x1: x(Math.max(lo, lo / factor)), y1: y(Math.max(lo, lo * factor)), x2: x(Math.min(hi, hi / factor)), y2: y(Math.min(hi, hi * factor)), style: `stroke:var(--soft);stroke-dasharray:${dash}`});
    picture.append(line(1, 'none'), line(1.1, '3 3'), line(1 / 1.1, '3 3'));
    for (const r of validation.rows) {
      const self = run && r.model === run.model.name && r.gpu === run.machine.name;
      picture.append(marked(svg('circle', {cx: x(r.measured_s), cy: y(r.predicted_s), r: self ? 5.5 : 4, style: `fill:${rampOf(models.indexOf(r.model), models.length)};fill-opacity:.85;stroke:var(--ink);stroke-width:${self ? 1.6 : 0.4}`}),
        () => ({title: r.name, rows: [['measured', text.seconds(r.measured_s)], ['predicted', text.seconds(r.predicted_s)], ['error', text.signed(r.predicted_s / r.measured_s - 1)], ['band', `± ${text.percent(r.band)}`], ['model', r.model], ['GPU', r.gpu]]})));
    }
    picture.append(svg('text', {class: 'soft', x: left + side / 2, y: height - 6, 'text-anchor': 'middle'}, 'measured step time'), svg('text', {class: 'soft', x: 2, y: 8 + side + 16}, 'predicted'));
    at.append(picture);
  }, 'Validation scatter');
  node.append(legend(models.map((m, i) => [rampOf(i, models.length), m])), html('p', {class: 'note'}, 'Dashed: 10 % off. A heavy outline marks runs of this page’s model and GPU.'),
    folded('as a table', () => table(['run', 'measured', 'predicted', 'error', 'band'], validation.rows.map(r => [r.name, text.seconds(r.measured_s), text.seconds(r.predicted_s), text.signed(r.predicted_s / r.measured_s - 1), `± ${text.percent(r.band)}`]))));
}

function drawSources(run) {
  const node = section('sources', 'Sources', `Which measured curve or data-sheet figure decided how much time, on the stage that computes longest. Residuals are those of the fit on points held back, 90th percentile. ${
    known(run.band.total) ? `The band of ± ${text.percent(run.band.total)} combines ± ${text.percent(run.band.curves)} of these curves with an error that runs on this machine and software have in common.` : ''}`);
  const origins = run.result.origins || [], all = sum(origins.map(o => o.time_s)), most = 14;
  const row = o => [o.op, text.seconds(o.time_s), text.percent(o.time_s / all), known(o.residual_p90) ? `± ${text.percent(o.residual_p90)}` : 'not known', o.data || 'data sheet'];
  const head = ['operator', 'time', 'share', 'residual', 'fitted to'];
  node.append(table(head, origins.slice(0, most).map(row), [4]));
  if (origins.length > most) node.append(folded(`${origins.length - most} more`, () => table(head, origins.slice(most).map(row), [4])));
  node.append(html('p', {class: 'note', style: 'margin-top:10px'}, `Simulated: ${run.result.fidelity} fidelity, ${run.result.events.toLocaleString('en-US')} events. `), controls(
    html('button', {type: 'button', class: 'button', onclick: () => save(`${run.name}.json`, JSON.stringify(run.scenario, null, 2))}, 'Download the scenario'),
    html('button', {type: 'button', class: 'button', onclick: () => save(`${run.name}.result.json`, JSON.stringify(run.result, null, 2))}, 'Download the result')));
}
function save(name, content) {
  const link = html('a', {href: URL.createObjectURL(new Blob([content], {type: 'application/json'})), download: name.replace(/[^\w.\-]+/g, '-')});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
