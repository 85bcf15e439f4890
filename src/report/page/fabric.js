/* fabric.js - the network between nodes: its tiers as strips of links, coloured by how full a step keeps them, and what
   sharing them costs each kind of collective. */

/* Links of one tier and direction in the order of the graph: [{title, links}], those nearest the core first. */
function linkStrips(run) {
  const strips = new Map();
  for (const l of run.links) {
    const back = l.name.endsWith('.in'),
      title = `${l.tier}${l.tier === 'torus link' ? '' : back ? ', down' : ', up'}`;
    if (!strips.has(title)) strips.set(title, []);
    strips.get(title).push(l);
  }
  return [...strips].map(([title, links]) => ({title, links})).reverse();
}

/* Rows of cells that fit the width; a strip of many links has smaller ones. */
function stripGrid(n, width) {
  const side = n > 1024 ? 5 : n > 256 ? 8 : 14,
    columns = Math.max(1, Math.min(n, Math.floor(width / side)));
  return {side, columns, rows: Math.ceil(n / columns)};
}

function drawStrip(at, width, strip) {
  const {side, columns, rows} = stripGrid(strip.links.length, width),
    mean = sum(strip.links.map(l => l.load)) / strip.links.length,
    most = Math.max(...strip.links.map(l => l.load));
  at.append(
    html(
      'p',
      {},
      `${strip.title}: ${strip.links.length} in use, ${text.percent(mean)} full on average, the fullest ` +
        text.percent(most),
    ),
  );
  const {node: sheet, ctx} = canvas(columns * side, rows * side, `Load of links, ${strip.title}`);
  strip.links.forEach((l, i) => {
    ctx.fillStyle = ramp(Math.min(l.load, 1));
    ctx.fillRect((i % columns) * side, Math.floor(i / columns) * side, side - 1, side - 1);
  });
  fill(
    sheet,
    {
      onpointerleave: hideTip,
      onpointermove: e => {
        const box = sheet.getBoundingClientRect(),
          x = Math.floor((e.clientX - box.left) / side),
          l = strip.links[Math.floor((e.clientY - box.top) / side) * columns + x];
        if (!l || x >= columns) return hideTip();
        showTip(
          {
            title: l.name,
            rows: [
              ['per step', text.bytes(l.bytes_B)],
              ['of what it could carry', text.percent(l.load)],
            ],
          },
          e.clientX,
          e.clientY,
        );
      },
    },
    [],
  );
  at.append(sheet);
}

function fabricWords(f) {
  const switches = f.leaves > 0 ? `, ${f.leaves} leaves, ${f.spines} spines` : '',
    pods = f.pods > 1 ? ` in ${f.pods} pods` : '';
  return `${f.kind}: ${f.nodes} nodes${switches}${pods}`;
}

function drawFabric(run) {
  const f = run.fabric;
  if (!f) return;
  const node = section(
    'fabric',
    'Network between nodes',
    `${fabricWords(f)}. A cell is a link (a trunk where packets take any of several), its colour the share of the ` +
      'step in which this job keeps it full; links that carry nothing are left out.',
  );
  const strips = linkStrips(run);
  plot(node, (at, width) => strips.forEach(strip => drawStrip(at, width, strip)), 'Load of the links');
  node.append(
    html('ul', {class: 'legend'}, rampScale('0', 'always full')),
    table(
      ['links', 'cables', 'each'],
      f.tiers.map(t => [t.name, `${t.links}`, text.rate(t.Bps)]),
      [0],
    ),
    html('h3', {}, 'What sharing costs'),
    html('p', {class: 'note'}, 'Time of each kind of collective over that on a network where only NICs have a limit.'),
    table(
      ['group', 'flows as', 'ranks', 'domains', 'flows', 'times as long', 'fullest link'],
      f.collectives.map(c => [
        c.group,
        c.pattern,
        `${c.size}`,
        `${c.domains}`,
        `${c.flows}`,
        c.slowdown.toFixed(3),
        c.busiest,
      ]),
      [0, 1, 6],
    ),
  );
}
