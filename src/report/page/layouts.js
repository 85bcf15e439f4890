/* layouts.js - the map of all layouts of a plan: step time against memory, a point for each or for many of them. */

const MAP_KEYS = [
  ['layout.pp', 'PP'],
  ['layout.ep', 'EP'],
  ['layout.tp', 'TP'],
  ['layout.cp', 'CP'],
  ['layout.vpp', 'VPP'],
  ['layout.etp', 'ETP'],
  ['training.micro_batch_size', 'micro-batch'],
  ['training.precision', 'precision'],
  ['layout.schedule', 'schedule'],
  ['options.recompute', 'recompute'],
  ['options.dispatcher', 'dispatcher'],
  ['gpus', 'GPUs'],
];
const DIFFERS = [...MAP_KEYS.map(([path]) => path), 'layout.pipeline_layout', 'options.ep_overlap'];
const valueAt = (scenario, path) => path.split('.').reduce((at, key) => (at ? at[key] : undefined), scenario);
const keyWord = value =>
  value && value.granularity
    ? value.granularity === 'selective'
      ? value.modules.join(', ')
      : value.granularity
    : Array.isArray(value)
      ? value.join(', ') || 'none'
      : String(value);

/* What the plan says of point `p`: of a named layout its scenario's value, else its own where it differs from the
 * winner. */
const mapValue = (plan, p, path) =>
  p.scenario ? valueAt(p.scenario, path) : path in p.set ? p.set[path] : valueAt(plan.best[0].scenario, path);
function mapScenario(plan, p) {
  if (p.scenario) return p.scenario;
  const scenario = JSON.parse(JSON.stringify(plan.best[0].scenario));
  for (const [path, value] of Object.entries(p.set)) {
    const keys = path.split('.'),
      last = keys.pop();
    keys.reduce((at, key) => (at[key] = at[key] || {}), scenario)[last] = value;
  }
  return scenario;
}

/* Values of one key over all points, in order, and their colours. */
function mapScale(plan, path) {
  const open = (plan.map.keys || []).find(key => key.path === path),
    own = plan.map.points.map(p => keyWord(mapValue(plan, p, path))),
    words = [...new Set([...own, ...(open ? open.values : []).map(keyWord)])];
  words.sort((a, b) => (Number(a) - Number(b) || (a < b ? -1 : a > b ? 1 : 0)));
  return {words, of: p => rampOf(words.indexOf(keyWord(mapValue(plan, p, path))), words.length)};
}
/* Of a bin how many have each value of a key, [[word, layouts]]; null: the key is no open one. */
function binValues(map, bin, path) {
  let from = 0;
  for (const key of map.keys) {
    if (key.path === path) return key.values.map((v, i) => [keyWord(v), bin.counts[from + i]]);
    from += key.values.length;
  }
  return null;
}
/* Layouts of a bin; with `word` those with that value of the key. */
const binCount = (map, bin, path, word) =>
  word ? ((binValues(map, bin, path) || []).find(([w]) => w === word) || ['', 0])[1] : bin.layouts;
const grouped = n => Math.round(n).toLocaleString('en-US');

/* The layouts that have names: the winner, the other choices, one's own. Points in full, the others are at `fast`. */
function namedLayouts(plan) {
  const choices = plan.choices ? plan.choices.list : [],
    best = plan.best[0],
    list = [{name: 'best', colour: 'accent', scenario: best.scenario, step_time_s: best.step_time_s}];
  list[0].device_B = Math.max(...best.memory.stages.map(s => s.device_B));
  choices.slice(1).forEach((c, i) => list.push({...c, name: `${i + 2}`, colour: 'accent'}));
  if (plan.named) list.push({...plan.named, name: 'mine', colour: 'comm'});
  return list;
}
/* From little memory to much, each faster than all before it. */
function frontOf(points) {
  const front = [];
  for (const p of [...points].sort((a, b) => a.device_B - b.device_B || a.step_time_s - b.step_time_s))
    if (!front.length || p.step_time_s < front[front.length - 1].step_time_s) front.push(p);
  return front;
}

/* act.look(scenario) shows a layout, act.can(scenario) says whether it can; act.opens: a click does so at once. Returns
 * the card, null without a map. */
function drawLayouts(parent, plan, act) {
  if (!plan.map || !plan.map.points.length || !plan.best.length) return null;
  const points = plan.map.points,
    best = plan.best[0],
    limit = plan.memory_limit_B,
    noise = plan.choices ? plan.choices.noise : 0,
    named = namedLayouts(plan),
    front = frontOf([...points, ...named].filter(p => p.device_B <= limit));
  const bins = plan.map.bins || [],
    fits = bin => bin.device_B < limit * (1 - 1e-9);
  const keys = MAP_KEYS.filter(
      ([path]) =>
        mapScale(plan, path).words.length > 1 && (!bins.length || plan.map.keys.some(key => key.path === path)),
    ),
    local = {key: (keys[0] || MAP_KEYS[0])[0], only: '', onlyKey: '', box: null, at: null};
  const card = html(
    'section',
    {id: 'layouts', class: 'card', 'aria-label': 'Map of all layouts'},
    html('h2', {}, 'Map of all layouts'),
    html(
      'p',
      {class: 'note'},
      `${plan.map.drawn ? 'About ' : ''}${Math.round(plan.map.layouts).toLocaleString('en-US')} layouts obey the ` +
        'rules; ' +
        (plan.map.drawn
          ? `${points.length} of them were drawn at random. `
          : points.length < plan.map.layouts
            ? 'every one is counted in the shaded cells, by the proven lower bounds of its step and memory, and ' +
              `${points.length} are points, half of them among the fastest tenth. `
            : 'each is a point. ') +
'Points are predicted at fidelity fast, those with a name in full. The band holds what is as fast as the best within ' +
        'the noise; the line joins what fits and what nothing shown beats in both time and memory. Hover or arrow ' +
        `keys show a layout, a click ${act.opens ? 'opens' : 'keeps'} it, dragging selects an area.`,
    ),
  );
  parent.append(card);
  const legend = html('ul', {class: 'legend'}),
    info = html('div', {class: 'note', 'aria-live': 'polite', id: 'layouts-info'}),
    values = html('select', {'aria-label': 'Value', hidden: true});
  let paint = () => {},
    point = () => {}; /* at a layout: marks it, and says what it is */
  const shown = p =>
    (!local.only || keyWord(mapValue(plan, p, local.onlyKey)) === local.only) &&
    (!local.box ||
      (p.device_B >= local.box.memory[0] &&
        p.device_B <= local.box.memory[1] &&
        p.step_time_s >= local.box.time[0] &&
        p.step_time_s <= local.box.time[1]));
  const counted = bin => binCount(plan.map, bin, local.onlyKey, local.only),
    inBox = bin =>
      !local.box ||
      (bin.device_B + plan.map.bin_B > local.box.memory[0] &&
        bin.device_B <= local.box.memory[1] &&
        bin.step_time_s * plan.map.bin_ratio > local.box.time[0] &&
        bin.step_time_s <= local.box.time[1]);
  const describeBin = bin => ({
    title: `${grouped(counted(bin))} layouts`,
    rows: [
      ['step at least', text.seconds(bin.step_time_s)],
      ['memory at least', text.GiB(bin.device_B)],
      ...(binValues(plan.map, bin, local.key) || [])
        .filter(([, n]) => n > 0)
        .map(([w, n]) => [`${(MAP_KEYS.find(([k]) => k === local.key) || ['', ''])[1]} ${w}`, grouped(n)]),
    ],
  });
  const describe = p => ({
    title:
      (p.name ? `${p.name}: ` : '') +
      `${text.seconds(p.step_time_s)}, ${text.GiB(p.device_B)}${p.device_B > limit ? ' (does not fit)' : ''}`,
    rows: [
      ...keys.map(([path, word]) => [word, keyWord(mapValue(plan, p, path))]),
      p.count >= 1.5 ? ['stands for', `${Math.round(p.count).toLocaleString('en-US')} layouts`] : null,
    ],
  });
  const differsText = p => {
    const best = plan.best[0].scenario,
      words = DIFFERS.map(path => [path, keyWord(mapValue(plan, p, path)), keyWord(valueAt(best, path))]).filter(
        ([, its, was]) => its !== was,
      );
    return words.length
      ? `Differs from the best in ${words.map(([path, its, was]) => `${path} ${its} (best: ${was})`).join('; ')}.`
      : 'The best, or its equal.';
  };
  const tell = () => {
    const list = points.filter(shown),
      fit = [...named.filter(shown), ...list].filter(p => p.device_B <= limit),
      cells = bins.filter(inBox),
      all = sum(bins.length ? cells.map(counted) : list.map(p => p.count)),
      fitting = sum(
        bins.length ? cells.filter(fits).map(counted) : list.filter(p => p.device_B <= limit).map(p => p.count),
      );
    info.replaceChildren(
      ...(local.at
        ? [
            html(
              'p',
              {},
              (c =>
                `${c.title}: ${c.rows
                  .filter(Boolean)
                  .map(r => r.join(' '))
                  .join(' · ')}`)(describe(local.at)),
            ),
            html('p', {}, differsText(local.at)),
            controls(
              act.can(mapScenario(plan, local.at))
                ? button('Show this layout', 'Show this layout', () => act.look(mapScenario(plan, local.at)))
                : null,
              button('Scenario', 'Download the scenario of this layout', () =>
                saveScenario(mapScenario(plan, local.at)),
              ),
            ),
          ]
        : []),
      html(
        'p',
        {},
        `${grouped(all)} layouts` +
          (local.box || local.only ? ' selected' : '') +
          `, ${bins.length ? 'at most ' : ''}${text.percent(fitting / Math.max(all, 1))} of them fit` +
          (fit.length
            ? `; the fastest of these points takes ${text.seconds(Math.min(...fit.map(p => p.step_time_s)))}`
            : ''),
      ),
    );
  };
  const again = () => {
    paint();
    tell();
  };
  const byKey = folded('as a table', () =>
    table(
      [
        (keys.find(([k]) => k === local.key) || MAP_KEYS[0])[1],
        'layouts',
        bins.length ? 'that may fit' : 'that fit',
        'fastest that fits',
        'least memory',
      ],
      mapScale(plan, local.key).words.map(w => {
        const list = points.filter(p => keyWord(mapValue(plan, p, local.key)) === w),
          fit = list.filter(p => p.device_B <= limit),
          of = some => sum(some.map(bin => binCount(plan.map, bin, local.key, w)));
        return [
          w,
          grouped(bins.length ? of(bins) : sum(list.map(p => p.count))),
          grouped(bins.length ? of(bins.filter(fits)) : sum(fit.map(p => p.count))),
          fit.length ? text.seconds(Math.min(...fit.map(p => p.step_time_s))) : '–',
          text.GiB(Math.min(...list.map(p => p.device_B))),
        ];
      }),
      [0],
    ),
  );
  const offer = path => {
    local.onlyKey = path;
    local.only = '';
    values.hidden = !path;
    if (path)
      values.replaceChildren(
        html('option', {value: ''}, 'all'),
        ...mapScale(plan, path).words.map(w => html('option', {value: w}, w)),
      );
    again();
  };
  values.addEventListener('change', () => {
    local.only = values.value;
    again();
  });
  card.append(
    controls(
      choice('Colour', keys.length ? keys : [MAP_KEYS[0]], local.key, v => {
        local.key = v;
        again();
        byKey.renew();
      }),
      choice('Only', [['', 'all layouts'], ...keys], '', offer),
      values,
      button('All', 'Take the selection back', () => {
        local.box = null;
        again();
      }),
      ...named.map(p => button(p.name, `Point at ${p.name} on the map`, () => point(p))),
    ),
    legend,
  );

  const top = Math.max(limit * 1.25, ...named.map(p => p.device_B * 1.1)),
    bottom = Math.min(...points.map(p => p.step_time_s), ...named.map(p => p.step_time_s)) * 0.96,
    sorted = points.map(p => p.step_time_s).sort((a, b) => a - b),
    ceiling =
      Math.max(sorted[Math.floor(0.98 * (sorted.length - 1))], ...named.map(p => p.step_time_s * 1.2)) * 1.05;
  const figure = plot(
    card,
    (at, width) => {
      const height = Math.max(260, Math.min(440, Math.round(width * 0.45))),
        left = 62,
        below = 40,
        {node, ctx} = canvas(width, height, 'Step time over memory of all layouts; arrow keys go from point to point');
      const x = B => left + (Math.min(B, top) / top) * (width - left - 8),
        y = s => {
          const share = Math.log(Math.min(Math.max(s, bottom), ceiling) / bottom) / Math.log(ceiling / bottom);
          return height - below - share * (height - below - 8);
        };
      const back = (px, py) => [
        ((px - left) / (width - left - 8)) * top,
        bottom * Math.exp(((height - below - py) / (height - below - 8)) * Math.log(ceiling / bottom)),
      ];
      let drag = null;
      paint = () => {
        const scale = mapScale(plan, local.key),
          ink = colour('soft');
        ctx.clearRect(0, 0, width, height);
        ctx.textAlign = 'right';
        for (const s of logTicks(bottom, ceiling)) {
          ctx.fillStyle = colour('grid');
          ctx.fillRect(left, Math.round(y(s)), width - left - 8, 1);
          ctx.fillStyle = ink;
          ctx.fillText(text.seconds(s), left - 6, y(s));
        }
        const most = Math.max(...bins.map(bin => bin.layouts), 2);
        for (const bin of bins) {
          const n = inBox(bin) ? counted(bin) : 0,
            values = binValues(plan.map, bin, local.key),
            word = values && !local.only && values.reduce((a, b) => (b[1] > a[1] ? b : a))[0],
            [left, right] = [x(bin.device_B), x(bin.device_B + plan.map.bin_B)],
            [high, low] = [y(bin.step_time_s * plan.map.bin_ratio), y(bin.step_time_s)];
          if (!n) continue;
          ctx.globalAlpha = 0.08 + (0.4 * Math.log(n + 1)) / Math.log(most + 1);
          ctx.fillStyle = word ? rampOf(scale.words.indexOf(word), scale.words.length) : ink;
          ctx.fillRect(left, high, Math.max(right - left - 1, 1), Math.max(low - high - 1, 1));
        }
        ctx.globalAlpha = 1;
        ctx.textAlign = 'center';
        for (const g of ticks(0, top / 2 ** 30, (width - left) / 90)) {
          ctx.fillStyle = colour('grid');
          ctx.fillRect(Math.round(x(g * 2 ** 30)), 8, 1, height - below - 8);
          ctx.fillStyle = ink;
          if (x(g * 2 ** 30) < width - 20) ctx.fillText(`${digits(g)}`, x(g * 2 ** 30), height - below + 12);
        }
        const axis = 'GiB of the fullest stage; what needs more stands at the edge';
        ctx.fillText(axis, left + (width - left) / 2, height - 10);
        ctx.textAlign = 'left';
        ctx.fillText('step time', 2, 6);
        ctx.fillStyle = colour('grid');
        const tie = y(best.step_time_s * (1 + noise));
        ctx.fillRect(left, tie, width - left - 8, Math.max(y(best.step_time_s) - tie, 1));
        ctx.fillStyle = colour('bad');
        ctx.fillRect(Math.round(x(limit)), 8, 2, height - below - 8);
        ctx.textAlign = 'right';
        ctx.fillText(`limit ${text.GiB(limit)}`, x(limit) - 4, 16);
        for (const pass of [false, true])
          for (const p of points) {
            if (shown(p) !== pass) continue;
            ctx.globalAlpha = pass ? 0.8 : 0.1;
            ctx.fillStyle = scale.of(p);
            ctx.beginPath();
            ctx.arc(x(p.device_B), y(p.step_time_s), 2.2 + Math.log10(Math.max(p.count, 1)), 0, 7);
            ctx.fill();
          }
        ctx.globalAlpha = 1;
        const mark = (B, s, name, edge) => {
          const [px, py] = [x(B), y(s)];
          ctx.fillStyle = edge;
          ctx.strokeStyle = colour('card');
          ctx.lineWidth = 2;
          ctx.beginPath();
          for (const [dx, dy] of [
            [7, 0],
            [0, 7],
            [-7, 0],
            [0, -7],
          ])
            ctx.lineTo(px + dx, py + dy);
          ctx.closePath();
          ctx.fill();
          ctx.stroke();
          ctx.textAlign = px > width - 90 ? 'right' : 'left';
          ctx.fillText(name, px + (px > width - 90 ? -11 : 11), py);
        };
        ctx.strokeStyle = colour('soft');
        ctx.lineWidth = 1.5;
        ctx.beginPath();
        front.forEach((p, i) => {
          if (i) ctx.lineTo(x(p.device_B), y(front[i - 1].step_time_s));
          ctx.lineTo(x(p.device_B), y(p.step_time_s));
        });
        ctx.stroke();
        for (const p of named) mark(p.device_B, p.step_time_s, p.name, colour(p.colour));
        if (local.at) {
          ctx.strokeStyle = colour('ink');
          ctx.lineWidth = 2;
          ctx.beginPath();
          ctx.arc(x(local.at.device_B), y(local.at.step_time_s), 7, 0, 7);
          ctx.stroke();
        }
        if (drag && drag.to) {
          ctx.strokeStyle = colour('accent');
          ctx.lineWidth = 1;
          ctx.strokeRect(drag.from[0], drag.from[1], drag.to[0] - drag.from[0], drag.to[1] - drag.from[1]);
        }
        legend.replaceChildren(
          ...scale.words.slice(0, 14).map((w, i) =>
            html('li', {}, html('i', {style: `background:${rampOf(i, scale.words.length)}`}), w),
          ),
        );
      };
      const place = e => {
        const b = node.getBoundingClientRect();
        return [e.clientX - b.left, e.clientY - b.top];
      };
      const nearest = ([px, py]) => {
        const closest = (list, within) => {
          let found = null,
            least = within ** 2;
          for (const p of list) {
            const d = (x(p.device_B) - px) ** 2 + (y(p.step_time_s) - py) ** 2;
            if (d < least) [found, least] = [p, d];
          }
          return found;
        };
        return closest(named, 9) || closest(points.filter(shown), bins.length ? 6 : 14);
      };
      const binAt = ([px, py]) => {
        const [B, s] = back(px, py);
        return bins.find(
          bin =>
            bin.device_B <= B &&
            B < bin.device_B + plan.map.bin_B &&
            bin.step_time_s <= s &&
            s < bin.step_time_s * plan.map.bin_ratio &&
            counted(bin) > 0,
        );
      };
      const open = p => {
        local.at = p;
        if (p && act.opens && act.can(mapScenario(plan, p))) act.look(mapScenario(plan, p));
      };
      const select = () => {
        const [a, b] = [back(...drag.from), back(...drag.to)];
        local.box = {
          memory: [Math.min(a[0], b[0]), Math.max(a[0], b[0]) >= top ? Infinity : Math.max(a[0], b[0])],
          time: [Math.min(a[1], b[1]), Math.max(a[1], b[1]) >= ceiling ? Infinity : Math.max(a[1], b[1])],
        };
        local.at = null;
      };
      const step = by => {
        const list = [...named, ...points].filter(shown).sort((a, b) => a.step_time_s - b.step_time_s);
        if (!list.length) return;
        point(list[Math.min(Math.max(list.indexOf(local.at) + by, 0), list.length - 1)]);
      };
      point = p => {
        local.at = p;
        again();
        const b = node.getBoundingClientRect();
        showTip(describe(p), b.left + x(p.device_B), b.top + y(p.step_time_s));
      };
      fill(
        node,
        {
          onpointerdown: e => {
            drag = {from: place(e), to: null};
            node.setPointerCapture(e.pointerId);
          },
          onpointermove: e => {
            const at = place(e);
            if (drag && (drag.to || Math.hypot(at[0] - drag.from[0], at[1] - drag.from[1]) > 6)) {
              drag.to = at;
              hideTip();
              return paint();
            }
            const p = nearest(at),
              bin = p ? null : binAt(at);
            if (p || bin) showTip(p ? describe(p) : describeBin(bin), e.clientX, e.clientY);
            else hideTip();
          },
          onpointerup: e => {
            if (drag && drag.to) select();
            else open(nearest(place(e)));
            drag = null;
            again();
          },
          onpointerleave: hideTip,
          onblur: hideTip,
          onkeydown: e => {
            const by = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[e.key];
            if (by) {
              e.preventDefault();
              step(by);
            } else if (e.key === 'Enter' && local.at) open(local.at);
          },
        },
        [],
      );
      at.append(node);
      paint();
    },
    'Map of all layouts',
    true,
  );
  card.append(info, byKey);
  tell();
  showFigure(figure);
  return card;
}
