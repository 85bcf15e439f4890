/* traffic.js - communication by class and link level, and between blocks of GPUs. */

const LEVELS = [
  ['scaleup_B', 'scale-up'],
  ['network_B', 'network'],
  ['host_B', 'host link'],
];

function classTotals(run, stage) {
  /* of one stage, or the mean over stages */
  const stages = run.result.stage_time.length,
    rows = [];
  for (const [word, list] of by(c => c.class, run.comm)) {
    const of = stage === 'mean' ? list : list.filter(c => c.stage === stage),
      over = stage === 'mean' ? stages : 1,
      total = k => sum(of.map(c => c[k] || 0)) / over;
    if (of.length)
      rows.push({
        word,
        group: of[0].group,
        calls: total('calls'),
        time_s: total('time_s'),
        exposed_s: total('exposed_s'),
        ...Object.fromEntries(LEVELS.map(([k]) => [k, total(k)])),
      });
  }
  return rows;
}

function trafficTable(run, stage) {
  const rows = classTotals(run, stage),
    most = Math.max(...rows.flatMap(r => LEVELS.map(([k]) => r[k])), 1),
    m = run.machine;
  const rate = {scaleup_B: m.scaleup_Bps, network_B: m.nic_Bps, host_B: m.host_link_Bps},
    used = LEVELS.filter(([k]) => rows.some(r => r[k] > 0));
  const heat = B =>
    html(
      'td',
      {
        class: 'heat',
        style:
          B > 0
            ? `background:color-mix(in srgb, var(--comm) ${Math.round(8 + 52 * Math.sqrt(B / most))}%, transparent)`
            : '',
      },
      B > 0 ? text.bytes(B) : '',
    );
  const body = rows.map(r => [
    r.word,
    r.group,
    ...used.map(([k]) => heat(r[k])),
    text.seconds(r.time_s),
    text.seconds(r.exposed_s),
    text.percent(r.time_s > 0 ? Math.max(0, 1 - r.exposed_s / r.time_s) : 0),
  ]);
  body.push([
    'wire time at the data sheet’s rate',
    '',
    ...used.map(([k]) =>
      known(rate[k]) && rate[k] > 0 ? text.seconds(sum(rows.map(r => r[k])) / rate[k]) : 'unknown',
    ),
    '',
    '',
    '',
  ]);
  return table(
    [
      'class',
      'group',
      ...used.map(([k, t]) => `${t}${known(rate[k]) ? `, ${text.rate(rate[k])}` : ''}`),
      'time',
      'exposed',
      'hidden',
    ],
    body,
    [1],
  );
}

/* All GPUs in at most 64 blocks, of whole domains where there are more GPUs. */
function wholeView(p) {
  const d = p.gpus > 64 ? Math.min(p.gpus_per_domain, p.gpus) : 1,
    per = Math.ceil(p.gpus / 64 / d) * d;
  return {per, first: 0, n: Math.ceil(p.gpus / per)};
}

/* 64 GPUs one by one, a block of the whole among them. */
function closeView(p, whole, block) {
  const n = Math.min(64, p.gpus),
    at = block * whole.per;
  return {per: 1, first: Math.min(Math.floor(at / n) * n, p.gpus - n), n};
}

/* Bytes from block to block of a view (blocks first to first + n of `per` GPUs) for one class and step: what a rank
   moves on a level is spread evenly over the members of its group on that level. */
function blockMatrix(run, word, {per, first, n}) {
  const p = run.placement,
    d = Math.min(p.gpus_per_domain, p.gpus),
    B = new Float64Array(n * n),
    rows = run.comm.filter(c => c.class === word && c.group in GROUPS);
  if (!rows.length) return B;
  const group = rows[0].group,
    [gridWord, axes] = GROUPS[group],
    grid = p[gridWord],
    ofStage = by(r => r.stage, rows),
    done = new Uint8Array(p.gpus),
    chain = axes.includes('pp'),
    block = r => Math.floor(r / per) - first,
    seen = b => b >= 0 && b < n;
  for (let r = 0; r < p.gpus; r++) {
    const stage = coords(grid, r).pp,
      mine = ofStage.get(stage);
    if (chain) {
      /* to the neighbours */
      if (!mine || !seen(block(r))) continue;
      const line = membersOf(p, group, r),
        at = line.indexOf(r),
        next = [line[(at + 1) % line.length], line[(at + line.length - 1) % line.length]];
      for (const to of next)
        if (seen(block(to)))
          B[block(r) * n + block(to)] += sum(mine.map(c => c.scaleup_B + c.network_B)) / next.length;
      continue;
    }
    if (done[r] || !mine) continue;
    const members = membersOf(p, group, r),
      blocks = new Map(),
      domains = new Map();
    for (const m of members) {
      done[m] = 1;
      const b = block(m),
        o = Math.floor(m / d);
      if (seen(b)) blocks.set(b, (blocks.get(b) || 0) + 1);
      domains.set(o, (domains.get(o) || 0) + 1);
    }
    if (!blocks.size) continue;
    const near = sum(mine.map(c => c.scaleup_B)),
      far = sum(mine.map(c => c.network_B));
    for (const [o, k] of domains) {
      /* inside a domain: pairs of its members */
      if (k < 2) continue;
      const cut = new Map();
      for (const m of members)
        if (Math.floor(m / d) === o && seen(block(m))) cut.set(block(m), (cut.get(block(m)) || 0) + 1);
      for (const [a, x] of cut)
        for (const [b, y] of cut) B[a * n + b] += (near / (k - 1)) * (a === b ? x * (x - 1) : x * y);
    }
    if (domains.size > 1)
      for (const [a, x] of blocks)
        for (const [b, y] of blocks) {
          /* across: pairs in different domains */
          let pairs = x * y;
          for (const [o, k] of domains)
            if (block(o * d) === a && block(o * d) === b && per >= d) pairs -= k * k;
          if (per < d && Math.floor(((a + first) * per) / d) === Math.floor(((b + first) * per) / d)) pairs = 0;
          B[a * n + b] += (far * pairs) / Math.max(members.length - members.length / domains.size, 1);
        }
  }
  return B;
}

const blockName = (p, view, b) => {
  const from = (view.first + b) * view.per;
  return view.per > 1 ? `GPU ${from}–${Math.min(from + view.per, p.gpus) - 1}` : `GPU ${from}`;
};

/* The matrix as a picture `side` wide; `picked(block)` where a click means something. */
function matrixCanvas(run, word, view, B, side, name, picked) {
  const {n} = view,
    cell = side / n,
    gap = cell > 5 ? 0.8 : 0,
    most = Math.max(...B, 1),
    {node: sheet, ctx} = canvas(side + 42, side + 22, `Bytes between ${name}, ${word}`);
  ctx.fillStyle = colour('grid');
  ctx.fillRect(42, 0, side, side);
  for (let a = 0; a < n; a++)
    for (let b = 0; b < n; b++)
      if (B[a * n + b] > 0) {
        ctx.fillStyle = ramp(Math.sqrt(B[a * n + b] / most));
        ctx.fillRect(42 + b * cell, a * cell, Math.max(cell - gap, 0.5), Math.max(cell - gap, 0.5));
      }
  ctx.fillStyle = colour('soft');
  ctx.textAlign = 'right';
  ctx.fillText(`${view.first * view.per}`, 36, cell / 2 + 2);
  ctx.fillText(`${(view.first + n - 1) * view.per}`, 36, side - Math.max(cell / 2, 5));
  ctx.textAlign = 'left';
  ctx.fillText('from ↓  to →', 42, side + 13);
  ctx.textAlign = 'right';
  ctx.fillText(`one row: ${view.per} GPU${view.per > 1 ? 's' : ''}`, 42 + side, side + 13);
  const at = e => {
    const box = sheet.getBoundingClientRect(),
      b = Math.floor((e.clientX - box.left - 42) / cell),
      a = Math.floor((e.clientY - box.top) / cell);
    return a >= 0 && b >= 0 && a < n && b < n ? [a, b] : null;
  };
  return fill(
    sheet,
    {
      onpointerleave: hideTip,
      onpointermove: e => {
        const hit = at(e);
        if (!hit) return hideTip();
        const bytes = B[hit[0] * n + hit[1]];
        showTip(
          {
            title: `${blockName(run.placement, view, hit[0])} to ${blockName(run.placement, view, hit[1])}`,
            rows: [[`${word}, per step`, bytes > 0 ? text.bytes(bytes) : 'nothing']],
          },
          e.clientX,
          e.clientY,
        );
      },
      onclick: e => picked && at(e) && picked(at(e)[0]),
      style: `${sheet.style.cssText};cursor:${picked ? 'pointer' : 'default'}`,
    },
    [],
  );
}

function drawTraffic(run) {
  if (!run.comm || !run.comm.length) return;
  const node = section(
    'traffic',
    'Communication',
    'Bytes that one GPU moves in a step, by class of communication and level of the machine, and the time its ' +
    'streams spend on it. Exposed is what compute waits for.',
  );
  const stages = [...new Set(run.comm.map(c => c.stage))],
    words = [...new Set(run.comm.map(c => c.class))],
    local = {stage: 'mean', word: words.includes('ep') ? 'ep' : words[0]},
    place = html('div', {});
  const fillTable = () => place.replaceChildren(trafficTable(run, local.stage));
  node.append(
    controls(
      choice('Stage', [['mean', 'mean over stages'], ...stages.map(s => [s, `${s}`])], 'mean', v => {
        local.stage = v === 'mean' ? v : Number(v);
        fillTable();
      }),
    ),
    place,
  );
  fillTable();
  const shown = words.filter(w => run.comm.some(c => c.class === w && c.scaleup_B + c.network_B > 0));
  if (!run.placement || !shown.length || run.placement.gpus < 2) return;
  if (!shown.includes(local.word)) local.word = shown[0];
  node.append(
    html('h3', {}, 'Who talks to whom'),
    html(
      'p',
      {class: 'note'},
      'Bytes in a step from the GPUs of a row to those of a column; what a GPU moves is spread evenly over its ' +
      'group on that level, pipeline messages over the two neighbours.',
    ),
  );
  const whole = wholeView(run.placement);
  let figure;
  const menu = choice(
    'One by one',
    Array.from({length: whole.n}, (_, b) => [b, blockName(run.placement, whole, b)]),
    0,
    v => {
      local.block = Number(v);
      figure.draw();
    },
  );
  node.append(
    controls(
      segments(
        'Class',
        shown.map(w => [w, w]),
        local.word,
        v => {
          local.word = v;
          local.block = undefined;
          figure.draw();
        },
      ),
      whole.per > 1 ? menu : null,
    ),
  );
  const panel = (view, B, side, name, title, picked) =>
    html(
      'figure',
      {},
      html('figcaption', {class: 'note'}, title),
      matrixCanvas(run, local.word, view, B, side, name, picked),
      html('ul', {class: 'legend'}, rampScale('0', `${text.bytes(Math.max(...B))} (square-root scale)`)),
    );
  figure = plot(
    node,
    (at, width) => {
      const B = blockMatrix(run, local.word, whole),
        two = whole.per > 1,
        side = Math.min(width - 42, two && width > 760 ? width / 2 - 60 : 460, 460);
      const pick = block => {
        local.block = block;
        figure.draw();
      };
      at.append(
        html('div', {class: 'matrices'}, panel(whole, B, side, 'blocks of GPUs', 'All GPUs', two ? pick : null)),
      );
      if (!two) return;
      const most = B.reduce((best, x, i) => (x > B[best] ? i : best), 0),
        block = local.block ?? Math.floor(most / whole.n),
        close = closeView(run.placement, whole, block),
        last = close.first + close.n - 1;
      menu.querySelector('select').value = block;
      at.firstChild.append(
        panel(
          close,
          blockMatrix(run, local.word, close),
          side,
          'GPUs',
          `GPU ${close.first}–${last} one by one (others: by a click on the left)`,
        ),
      );
    },
    'Communication matrix',
  );
}
