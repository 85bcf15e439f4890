/* map.js - which GPU holds which attention shard and which experts; hover shows the groups of a GPU. */

/* Coordinates of a rank in a grid whose axes stand fastest first. */
function coords(grid, rank) {
  const at = {};
  let rest = rank;
  for (const {axis, size} of grid) {
    at[axis] = rest % size;
    rest = Math.floor(rest / size);
  }
  return at;
}
function rankOf(grid, at) {
  let rank = 0,
    stride = 1;
  for (const {axis, size} of grid) {
    rank += at[axis] * stride;
    stride *= size;
  }
  return rank;
}
/* Ranks that differ from `rank` in the given axes of a grid only, ascending. */
function groupOf(grid, axes, rank) {
  let list = [coords(grid, rank)];
  for (const {axis, size} of grid)
    if (axes.includes(axis)) list = list.flatMap(c => [...Array(size).keys()].map(i => ({...c, [axis]: i})));
  return list.map(c => rankOf(grid, c)).sort((a, b) => a - b);
}
const GROUPS = {
  /* word: grid, axes, which part of their group where the optimizer comes in several instances */
  tp: ['attention', ['tp']],
  cp: ['attention', ['cp']],
  dp: ['attention', ['dp']],
  'dp-cp': ['attention', ['dp', 'cp']],
  pp: ['attention', ['pp']],
  ep: ['expert', ['ep']],
  etp: ['expert', ['etp']],
  edp: ['expert', ['edp']],
  'etp-ep': ['expert', ['etp', 'ep']],
  'tp-cp': ['attention', ['tp', 'cp']],
  'tp-dp-cp': ['attention', ['tp', 'dp', 'cp']],
  embedding: ['attention', ['pp']],
  world: ['attention', ['tp', 'cp', 'dp', 'pp']],
  'cp-inner': ['attention', ['cp']],
  'cp-outer': ['attention', ['cp']],
  'intra-dp-cp': ['attention', ['dp', 'cp'], 'intra'],
  'intra-edp': ['expert', ['edp'], 'intra'],
  'inter-instance': ['attention', ['dp', 'cp'], 'inter'],
};
/* Instances are runs of the members of a data-parallel group. */
function membersOf(p, word, rank) {
  const [grid, axes, part] = GROUPS[word],
    all = groupOf(p[grid], axes, rank);
  if (!part) return all;
  const run = all.length / p.groups.find(g => g.group === 'inter-instance').size,
    at = all.indexOf(rank) % run;
  return part === 'intra'
    ? all.slice(all.indexOf(rank) - at, all.indexOf(rank) - at + run)
    : all.filter((_, i) => i % run === at);
}
const groupSize = (p, word) =>
  GROUPS[word][1].reduce((n, a) => n * (p[GROUPS[word][0]].find(g => g.axis === a) || {size: 1}).size, 1);

function layersOf(chunks) {
  return chunks
    .map(c =>
      [
        c.embedding ? 'embedding' : null,
        c.layers ? `${c.first_layer}–${c.first_layer + c.layers - 1}` : null,
        c.mtp ? `${c.mtp} MTP` : null,
        c.loss ? 'loss' : null,
      ]
        .filter(Boolean)
        .join(' + '),
    )
    .join(' | ');
}
function expertsOf(p, ep) {
  const size = p.expert.find(g => g.axis === 'ep').size,
    each = p.experts / size;
  return p.experts ? (each > 1 ? `${ep * each}–${(ep + 1) * each - 1}` : `${ep}`) : 'none';
}
function describeGpu(p, rank, group) {
  const a = coords(p.attention, rank),
    e = coords(p.expert, rank),
    size = word => groupSize(p, word);
  const members = membersOf(p, group, rank);
  const share = (k, at, n) => (n > 1 ? `${k} ${at} of ${n}` : null);
  return {
    title: `GPU ${rank}`,
    rows: [
      ['domain, node', `${Math.floor(rank / p.gpus_per_domain)}, ${Math.floor(rank / p.gpus_per_node)}`],
      ['stage', `${a.pp} of ${size('pp')}`],
      ['layers', layersOf(p.stages[a.pp])],
      [
        'attention',
        [share('tp', a.tp, size('tp')), share('cp', a.cp, size('cp')), share('dp', a.dp, size('dp'))]
          .filter(Boolean)
          .join(', ') || 'whole',
      ],
      p.experts
        ? ['experts', `${expertsOf(p, e.ep)}${size('etp') > 1 ? `, slice ${e.etp} of ${size('etp')}` : ''}`]
        : null,
      p.experts
        ? [
            'expert grid',
            [share('ep', e.ep, size('ep')), share('edp', e.edp, size('edp'))].filter(Boolean).join(', ') || 'whole',
          ]
        : null,
      [`${group} group (${members.length})`, ranges(members)],
    ],
  };
}

const MAP_COLOURS = {
  shards: ['attention and expert shard', null],
  pp: ['pipeline stage', p => [r => coords(p.attention, r).pp, groupSize(p, 'pp')]],
  attention: [
    'attention shard (tp, cp)',
    p => [
      r => {
        const c = coords(p.attention, r);
        return c.tp + c.cp * groupSize(p, 'tp');
      },
      groupSize(p, 'tp-cp'),
    ],
  ],
  expert: [
    'expert shard (etp, ep)',
    p => [
      r => {
        const c = coords(p.expert, r);
        return c.etp + c.ep * groupSize(p, 'etp');
      },
      groupSize(p, 'etp-ep'),
    ],
  ],
  dp: ['data-parallel replica', p => [r => coords(p.attention, r).dp, groupSize(p, 'dp')]],
  edp: ['expert data-parallel replica', p => [r => coords(p.expert, r).edp, groupSize(p, 'edp')]],
};

const tileLargest = 22,
  tileSmallest = 3; /* pixels */
/* Tiles of a domain stand together; domains fill the width. Returns the tile size and the place of every rank. */
function arrange(p, width) {
  const d = Math.min(p.gpus_per_domain, p.gpus),
    domains = Math.ceil(p.gpus / d);
  let cols = d <= 8 ? Math.min(d, 4) : Math.ceil(Math.sqrt(d));
  while (d > 8 && d % cols && cols < d) cols++; /* full rows */
  if (cols * tileSmallest > width) cols = Math.max(1, Math.floor(width / tileSmallest) - 1);
  const rows = Math.ceil(d / cols);
  const together = Math.max(
    1,
    Math.round(p.gpus / groupSize(p, 'pp') / d),
  ); /* domains of one pipeline stage: lines break with them where they can */
  const aligned = most => {
    if (together <= most) return Math.floor(most / together) * together;
    for (let n = most; n > most / 2; n--) if (together % n === 0) return n;
    return most;
  };
  for (let tile = tileLargest; ; tile -= 1) {
    const pad = tile >= 8 ? 7 : 4,
      bw = cols * tile + pad,
      bh = rows * tile + pad,
      across = aligned(Math.max(1, Math.floor((width - 2) / bw))),
      height = Math.ceil(domains / across) * bh;
    if (tile > tileSmallest && (height > 560 || bw > width)) continue;
    return {
      tile,
      height: height + 2,
      across,
      bw,
      bh,
      cols,
      rows,
      d,
      domains,
      at: r => {
        const b = Math.floor(r / d),
          i = r % d;
        return [
          1 + (b % across) * bw + (i % cols) * tile,
          1 + Math.floor(b / across) * bh + Math.floor(i / cols) * tile,
        ];
      },
    };
  }
}

function drawMap(run, state) {
  const p = run.placement;
  if (!p) return;
  const moe = p.experts > 0,
    words = ['tp', 'cp', 'dp', 'pp', ...(moe ? ['ep', 'etp', 'edp'] : [])].filter(w => groupSize(p, w) > 1);
  const node = section(
    'map',
    'Layout map',
    `Each tile is a GPU, each block of tiles a scale-up domain of ${Math.min(p.gpus_per_domain, p.gpus)}. Hover ` +
    `(or focus and arrow keys) shows what a GPU holds and outlines its group; a click keeps it.`,
  );
  const local = {
    mode: moe ? 'shards' : 'pp',
    group: words.includes('ep') ? 'ep' : words[0] || 'tp',
    rank: null,
    pinned: false,
  };
  const modes = Object.entries(MAP_COLOURS)
    .filter(([k, [, of]]) => (k === 'shards' ? moe : of(p)[1] > 1 || k === 'pp'))
    .map(([k, [t]]) => [k, t]);
  const scale = html('ul', {class: 'legend'});
  let paint = () => {};
  node.append(
    controls(
      choice('Colour', modes, local.mode, v => {
        local.mode = v;
        paint();
      }),
      words.length
        ? choice(
            'Group',
            words.map(w => [w, `${w} (${groupSize(p, w)} GPUs)`]),
            local.group,
            v => {
              local.group = v;
              paint();
            },
          )
        : null,
    ),
    scale,
  );
  const info = html('p', {class: 'note', 'aria-live': 'polite'});
  plot(
    node,
    (at, width) => {
      const place = arrange(p, width),
        {node: sheet, ctx} = canvas(width, place.height, 'Map of GPUs; arrow keys move from GPU to GPU');
      paint = () => {
        const t = place.tile,
          gap = t >= 8 ? 1.5 : 0.5,
          [of, size] = local.mode === 'shards' ? [null, 0] : MAP_COLOURS[local.mode][1](p);
        const stages = groupSize(p, 'pp'),
          shardOf = MAP_COLOURS.attention[1](p),
          expertOf = MAP_COLOURS.expert[1](p);
        ctx.clearRect(0, 0, width, place.height);
        ctx.fillStyle = colour('grid');
        for (let b = 0; b < place.domains; b++) {
          const [x, y] = place.at(b * place.d);
          ctx.fillRect(x - 1, y - 1, place.cols * t + 2, place.rows * t + 2);
        }
        for (let r = 0; r < p.gpus; r++) {
          const [x, y] = place.at(r),
            s = t - gap;
          if (of) {
            ctx.fillStyle = rampOf(of(r), size);
            ctx.fillRect(x, y, s, s);
            continue;
          }
          const c = coords(p.attention, r);
          ctx.fillStyle = shardOf[1] > 1 ? rampOf(shardOf[0](r), shardOf[1]) : rampOf(c.pp, stages);
          ctx.fillRect(x, y, s, s);
          ctx.fillStyle = rampOf(expertOf[0](r), expertOf[1]);
          ctx.beginPath();
          ctx.moveTo(x + s, y);
          ctx.lineTo(x + s, y + s);
          ctx.lineTo(x, y + s);
          ctx.fill();
        }
        if (local.rank !== null) {
          const members = membersOf(p, local.group, local.rank),
            inside = new Set(members);
          ctx.fillStyle = colour('card');
          ctx.globalAlpha = 0.62;
          for (let r = 0; r < p.gpus; r++)
            if (!inside.has(r)) {
              const [x, y] = place.at(r);
              ctx.fillRect(x, y, t - gap, t - gap);
            }
          ctx.globalAlpha = 1;
          ctx.strokeStyle = colour('ink');
          ctx.lineWidth = t >= 8 ? 1.5 : 1;
          for (const r of members) {
            const [x, y] = place.at(r);
            ctx.strokeRect(x - 0.25, y - 0.25, t - gap + 0.5, t - gap + 0.5);
          }
          const [x, y] = place.at(local.rank);
          ctx.strokeStyle = colour('comm');
          ctx.lineWidth = 2.5;
          ctx.strokeRect(x - 1, y - 1, t - gap + 2, t - gap + 2);
        }
        const gradient = html('i', {
          style: `width:90px;background:linear-gradient(90deg,${RAMP.map(c => `rgb(${c})`).join(',')})`,
        });
        const entry = (label, n) =>
          html(
            'li',
            {},
            label,
            n > 1 ? '0' : '',
            n > 1 ? gradient.cloneNode() : html('i', {style: `background:${rampOf(0, 1)}`}),
            n > 1 ? `${n - 1}` : 'one for all',
          );
        scale.replaceChildren(
          ...(of
            ? [entry(`${MAP_COLOURS[local.mode][0]} `, size)]
            : [
                entry(
                  shardOf[1] > 1 ? 'upper left: attention shard ' : 'upper left: pipeline stage ',
                  shardOf[1] > 1 ? shardOf[1] : stages,
                ),
                entry('lower right: expert shard ', expertOf[1]),
              ]),
        );
        info.textContent =
          local.rank === null
            ? ''
            : (c =>
                `${c.title}: ${c.rows
                  .filter(Boolean)
                  .map(r => r.join(' '))
                  .join(' · ')}`)(describeGpu(p, local.rank, local.group));
      };
      const find = e => {
        const box = sheet.getBoundingClientRect(),
          x = e.clientX - box.left - 1,
          y = e.clientY - box.top - 1,
          bx = Math.floor(x / place.bw),
          by = Math.floor(y / place.bh);
        const i = Math.floor((x - bx * place.bw) / place.tile),
          j = Math.floor((y - by * place.bh) / place.tile),
          rank = (by * place.across + bx) * place.d + j * place.cols + i;
        return bx >= 0 &&
          bx < place.across &&
          i >= 0 &&
          i < place.cols &&
          j >= 0 &&
          j < place.rows &&
          j * place.cols + i < place.d &&
          rank >= 0 &&
          rank < p.gpus
          ? rank
          : null;
      };
      const show = (rank, x, y) => {
        if (rank !== local.rank) {
          local.rank = rank;
          paint();
        }
        if (rank === null) hideTip();
        else showTip(describeGpu(p, rank, local.group), x, y);
      };
      const move = by => {
        local.rank = Math.min(Math.max(local.rank === null ? 0 : local.rank + by, 0), p.gpus - 1);
        const [x, y] = place.at(local.rank),
          box = sheet.getBoundingClientRect();
        paint();
        showTip(describeGpu(p, local.rank, local.group), box.left + x, box.top + y);
      };
      fill(
        sheet,
        {
          onpointermove: e => {
            if (!local.pinned) show(find(e), e.clientX, e.clientY);
          },
          onpointerleave: () => {
            if (!local.pinned) {
              local.rank = null;
              paint();
            }
            hideTip();
          },
          onclick: e => {
            const r = find(e);
            local.pinned = r !== null && !(local.pinned && r === local.rank);
            local.rank = r;
            paint();
          },
          onblur: hideTip,
          onkeydown: e => {
            const by = {ArrowRight: 1, ArrowLeft: -1, ArrowDown: place.cols, ArrowUp: -place.cols}[e.key];
            if (by) {
              e.preventDefault();
              move(by);
            }
          },
        },
        [],
      );
      at.append(sheet);
      paint();
    },
    'Layout map',
  );
  node.append(
    info,
    folded('stages as a table', () =>
      table(
        ['stage', 'layers by chunk', 'MoE layers', 'GPUs'],
        p.stages.map((c, i) => [`${i}`, layersOf(c), `${sum(c.map(k => k.moe))}`, `${p.gpus / groupSize(p, 'pp')}`]),
        [1],
      ),
    ),
  );
}
